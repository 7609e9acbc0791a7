"""Measure the ingest of LanceDB or qdrant-edge-py, in a separate environment: `PYTHON -m benchmarks.live.rivals`.

Both begin with an index of the stream's first documents, as rayhier does. Both index the added documents after as many
documents as rayhier's tail may hold. LanceDB also does so at the interval of its manual.
"""

import argparse
import math
import shutil
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.live.gauge import Taken, Until, about, ask, ingest, watched, weigh
from benchmarks.live.stream import BATCH, TOGETHER, K, Stream

PARTITION = 2_000
"""LanceDB: rows of a list of k-means, to which `optimize` splits and joins lists."""
PROBED, REFINED = (5, 20, 80), (10, 50)
"""LanceDB: lists that a search reads, and how many times the results are scored again in full."""
LINKS, CONSTRUCTION = 16, 100
"""qdrant: links of the graph's nodes, and candidates while it is built."""
CANDIDATES = (32, 128, 512)
"""qdrant: candidates of a search."""


def lancedb(
    system: str, together: int, optimized: int, folder: Path, stream: Stream, trial: str, until: Until
) -> Taken:
    """LanceDB's `add` of so many batches, and `optimize` of its IVF-PQ index after so many."""
    import lancedb
    import pyarrow as pa
    from lancedb.index import IvfPq

    m = stream.vector_NM.shape[1]

    def rows(ids: list[str], texts: list[str], vector_BM: Any) -> Any:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(vector_BM).ravel()), m)
        return pa.table({"id": ids, "text": texts, "vector": vectors})

    table = lancedb.connect(str(folder)).create_table("documents", rows(stream.first, stream.texts, stream.vector_NM))
    config = IvfPq(distance_type="dot", num_sub_vectors=m // 8, target_partition_size=PARTITION)
    table.create_index("vector", config=config)
    table.optimize(cleanup_older_than=timedelta(0))

    waiting = list[Any]()

    def flush() -> None:
        if waiting:
            table.add(pa.concat_tables(waiting))
            waiting.clear()

    def optimize() -> None:
        flush()
        table.optimize(cleanup_older_than=timedelta(0))

    def add(number: int) -> None:
        batch = stream.batch(number)
        waiting.append(rows(batch.ids, batch.texts, batch.vector_BM))
        if len(waiting) == together:
            flush()
        if (number + 1) % optimized == 0:
            optimize()

    def search(probed: int, refined: int, query_M: Any) -> list[str]:
        search = table.search(query_M, vector_column_name="vector").distance_type("dot").nprobes(probed)
        ids: list[str] = search.refine_factor(refined).limit(K).select(["id", "text"]).to_arrow()["id"].to_pylist()
        return ids

    taken = Taken(system, trial, together * BATCH, about(f"lancedb {version('lancedb')}"))
    with watched(taken):
        ingest(taken, add, until, optimize)
    searches = {
        f"{probed} probes, {refined * K} scored again": partial(search, probed, refined)
        for probed in PROBED
        for refined in REFINED
    }
    with watched(taken, adds=False):
        ask(taken, stream, searches)
    weigh(taken, folder)
    return taken


def qdrant(system: str, folder: Path, stream: Stream, trial: str, until: Until) -> Taken:
    """qdrant-edge-py's `upsert_points`, then `optimize` of its HNSW graphs."""
    import qdrant_edge as edge

    m = stream.vector_NM.shape[1]
    vectors = edge.EdgeVectorParams(size=m, distance=edge.Distance.Dot)
    graph = edge.HnswIndexConfig(m=LINKS, ef_construct=CONSTRUCTION, full_scan_threshold=10_000)
    folder.mkdir(parents=True)
    shard = edge.EdgeShard.create(str(folder), edge.EdgeConfig(vectors=vectors, hnsw_config=graph))

    def put(begin: int, ids: list[str], texts: list[str], vector_BM: Any) -> None:
        points = [
            edge.Point(begin + place, vector, {"id": id_, "text": text})
            for place, (id_, text, vector) in enumerate(zip(ids, texts, vector_BM.tolist(), strict=True))
        ]
        shard.update(edge.UpdateOperation.upsert_points(points))

    first = stream.first
    for begin in range(0, len(first), BATCH):
        part = slice(begin, begin + BATCH)
        put(begin, first[part], stream.texts[part], stream.vector_NM[part])
    shard.optimize()
    shard.flush()

    def optimize() -> None:
        shard.optimize()
        shard.flush()

    def add(number: int) -> None:
        batch = stream.batch(number)
        put(len(first) + number * BATCH, batch.ids, batch.texts, batch.vector_BM)
        if (number + 1) % TOGETHER == 0:
            optimize()

    def search(candidates: int, query_M: Any) -> list[str]:
        request = edge.QueryRequest(
            limit=K,
            query=edge.Query.Nearest(query_M.tolist()),
            with_payload=True,
            params=edge.SearchParams(hnsw_ef=candidates),
        )
        return [point.payload["id"] for point in shard.query(request)]

    taken = Taken(system, trial, BATCH, about(f"qdrant-edge-py {version('qdrant-edge-py')}"))
    with watched(taken):
        ingest(taken, add, until, optimize)
    with watched(taken, adds=False):
        ask(taken, stream, {f"{candidates} candidates": partial(search, candidates) for candidates in CANDIDATES})
    weigh(taken, folder)
    return taken


SYSTEMS: dict[str, Callable[[Path, Stream, str, Until], Taken]] = {
    "lancedb": partial(lancedb, "lancedb", TOGETHER, 5 * TOGETHER),
    "lancedb-20000": partial(lancedb, "lancedb-20000", TOGETHER, TOGETHER),
    "lancedb-1000": partial(lancedb, "lancedb-1000", 1, TOGETHER),
    "qdrant-edge": partial(qdrant, "qdrant-edge"),
}


def main() -> None:
    """Run one system on the stream of a folder; its figures go to the workdir."""
    parser = argparse.ArgumentParser(description="Measure the ingest of another system.")
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("folder", type=Path, help="folder of the stream")
    parser.add_argument("workdir", type=Path, help="folder of the figures")
    parser.add_argument("--seconds", type=float, default=math.inf, help="end after so many seconds")
    parser.add_argument("--documents", type=float, default=math.inf, help="end after so many documents")
    parser.add_argument("--trial", default="documents", help="name of the limit")
    parser.add_argument("--run", type=int, default=1, help="number of the run")
    options = parser.parse_args()
    place, until = options.folder / options.system, Until(options.seconds, options.documents)
    shutil.rmtree(place, ignore_errors=True)
    taken = SYSTEMS[options.system](place, Stream.open(options.folder), options.trial, until)
    taken.write(options.workdir, options.run)
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
