"""Time a vector query, with texts of its results, by the code of several checkouts of rayhier.

    make bench NAME=query ARGS="WORKDIR CHECKOUT CHECKOUT"

The first checkout is the baseline. faiss HNSW with a lookup of ids is the fastest other library. Each checkout searches
in a separate process with one thread. In each round all systems take turns, so that noise slows all alike.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.commands import Options, absolute
from benchmarks.machine import set_threads, timed
from benchmarks.tables import table
from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.dataset.queries import load_split
from rayhier.search.snapshot import Snapshot
from rayhier.storage import columns, current
from rayhier.storage.paths import locate

K, ROUNDS, QUERIES = 10, 15, 400
BATCHES = (1, 64)
EFFORT = 64
"""efSearch of faiss HNSW."""
Search = Callable[[Floats], list[list[str]]]


def worker(workdir: str, vectors: str) -> None:
    """Search in rounds: for each batch size that a line asks, print the seconds and the ids found."""
    set_threads(1)
    index, query_QM = Snapshot.open(workdir), np.load(vectors)

    def search(some_QM: Floats) -> list[list[str]]:
        return [[hit.id for hit in answer.hits] for answer in index.search(some_QM, K)]

    for line in sys.stdin:
        print(json.dumps(searched(search, query_QM, int(line))), flush=True)


def searched(search: Search, query_QM: Floats, batch: int) -> tuple[float, list[list[str]]]:
    found = list[list[str]]()

    def everything() -> None:
        for begin in range(0, len(query_QM), batch):
            found.extend(search(query_QM[begin : begin + batch]))

    return timed(everything), found


@contextlib.contextmanager
def process_of(checkout: Path, workdir: Path, vectors: Path) -> Iterator[Callable[[int], Any]]:
    """Search by the code of a checkout in another process."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-P", __file__, "--worker", str(workdir), str(vectors)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=checkout, env=environment
    ) as opened:
        asking, answers = opened.stdin, opened.stdout
        assert asking is not None
        assert answers is not None

        def ask(batch: int) -> Any:
            print(batch, file=asking, flush=True)
            return json.loads(answers.readline())

        yield ask
        asking.close()


def graph(vector_NM: Floats, ids: list[str]) -> Search:
    index = faiss.IndexHNSWFlat(vector_NM.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = 100, EFFORT
    index.add(vector_NM)
    return lambda query_QM: [[ids[row] for row in rows] for rows in index.search(query_QM, K)[1].tolist()]


def documents_of(workdir: Path) -> tuple[Floats, list[str], Floats]:
    """Vectors and ids of all documents, and vectors of dev queries."""
    index = Snapshot.open(str(workdir))
    now = current.read(locate(str(workdir)))
    shards = [index.leaf_map.read(shard, ["doc_id", "rank", "vector"]) for shard in index.manifest.shards]
    rows = pa.concat_tables(shards)
    rows = rows.filter(pa.array(rows["rank"].to_numpy() == 0))
    corpus, base = (current.artifact(locate(str(workdir)), now, kind) for kind in ("corpus", "vectors"))
    judged = load_split("dev", corpus, base, None)
    query_QM = index.model.encode_stored(judged.vector_QM[:QUERIES], lambda: judged.texts[:QUERIES], "query").numpy
    return columns.matrix(rows["vector"]).astype(np.float32), rows["doc_id"].to_pylist(), query_QM


def main() -> None:
    """Print the median microseconds of a query for each checkout, and the ratio to the first one's."""
    parser = Options("Time a vector query, by the code of several checkouts.")
    parser.add_argument("workdir", type=absolute)
    parser.add_argument("checkouts", type=absolute, nargs="+")
    options = parser.parse_args()
    set_threads(1)
    vector_NM, ids, query_QM = documents_of(options.workdir)
    best_QK: Ints = np.argsort(-(query_QM @ vector_NM.T), axis=1)[:, :K]
    with contextlib.ExitStack() as closing:
        vectors = Path(closing.enter_context(tempfile.TemporaryDirectory())) / "queries.npy"
        np.save(vectors, query_QM)
        systems: dict[str, Callable[[int], Any]] = {}
        for checkout in options.checkouts:
            systems[checkout.name] = closing.enter_context(process_of(checkout, options.workdir, vectors))
        systems[f"faiss HNSW, efSearch {EFFORT}"] = partial(searched, graph(vector_NM, ids), query_QM)
        taken = {(name, batch): list[float]() for name in systems for batch in BATCHES}
        found = dict[str, list[list[str]]]()
        for round_ in range(ROUNDS + 2):  # the first two warm up
            for name, batch in taken:
                seconds, found[name] = systems[name](batch)
                taken[name, batch] += [1e6 * seconds / len(query_QM)] if round_ > 1 else []
    first, lines = next(iter(systems)), []
    for name in systems:
        true = [{ids[row] for row in rows} for rows in best_QK.tolist()]
        recall = np.mean([len(own & set(hits)) / K for own, hits in zip(true, found[name], strict=True)])
        cells = [name, f"{recall:.3f}"]
        for batch in BATCHES:
            ratio = np.median(np.array(taken[name, batch]) / np.array(taken[first, batch]))
            cells.append(f"{np.median(taken[name, batch]):,.0f} ({ratio:.2f})")
        lines.append(cells)
    print(f"\n{len(ids):,} documents, {len(query_QM)} queries, microseconds a query (ratio to the first row)\n")
    heads = ["alone" if batch == 1 else f"batches of {batch}" for batch in BATCHES]
    print("\n".join(table(["system", f"of the true {K}", *heads], lines)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:])
    else:
        main()
