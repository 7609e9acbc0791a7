"""Searching the same vectors with faiss, ScaNN, hnswlib, LanceDB and a leaf map in each codec: `make bench-search`.

First, probing the same lists with the same rows: a leaf map against faiss' own lists, in paired rounds. Then every
system by itself, at the least effort that finds 95% of the true ten nearest. Vectors are the collection's under the
base encoder; routers know their documents and no query, since this measures the search and not what was learned.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.cluster.library import faiss, ivf_tools
from rayhier.index.assign import Assigner, leaf_counts
from rayhier.index.shards import ranges, write_shard
from rayhier.model.router import route_all
from rayhier.model.taught import TaughtRouter
from rayhier.search import codecs
from rayhier.search.lazy import LazyMap, Rows
from rayhier.search.lists import Ints
from rayhier.search.loaded import LoadedMap
from rayhier.spec import JobSpec
from rayhier.storage import leaf_map, schemas
from rayhier.storage.columns import Floats
from rayhier.storage.leaf_map import LeafMap, Manifest
from rayhier.train.settle import make_router, settle

sys.path.insert(0, str(Path(__file__).parent))

K, RECALL, BATCH, ROUNDS = 10, 0.95, 64, 7
QUERIES, ALONE = 2_000, 200
SHARDS = 4
PROBED = 0.01
"""Share of the leaves that are probed where lists are compared."""
LINKS, CONSTRUCTION = 32, 100
"""Of a graph's nodes, and candidates while it is built."""
AGAIN = 8
"""Rows scored again for each wanted, of faiss' and LanceDB's product quantization."""

Search = Callable[[Floats, int, int], Ints]
"""Queries, effort and threads -> rows [q, 10]."""


@dataclass(frozen=True)
class System:
    """One index, and how it is asked."""

    name: str
    seconds: float
    bytes: int
    efforts: Sequence[int]
    search: Search
    visited: Callable[[Floats, int], float]
    """Documents scored a query, of those the index holds."""
    threads: bool = True
    """Whether the number of threads is ours to say."""


@dataclass(frozen=True)
class Asked:
    """Queries, and their true nearest."""

    query_QM: Floats
    true_QK: Ints

    def recall(self, found_QK: Ints) -> float:
        """Of the true ten."""
        hits = (found_QK[:, :, None] == self.true_QK[:, None, :]).any(axis=1)
        return float(hits.mean())


class Ours:
    """A leaf map of the vectors and the router that fills it."""

    def __init__(self, vector_NM: Floats, leaves: int, folder: Path) -> None:
        began = time.monotonic()
        spec = JobSpec.model_validate(
            {
                "name": "search",
                "workdir": str(folder),
                "corpus": {"type": "jsonl", "documents": "none"},
                "encoder": {"model": "package:none", "train": "head"},
                "router": {"type": "ehi", "branching": leaves, "residual": "none"},
            }
        )
        self.router: TaughtRouter = make_router(spec.router.over(len(vector_NM)), vector_NM, 0)
        settle(self.router, vector_NM, spec, 0)
        names = [f"{row:09d}" for row in range(len(vector_NM))]
        texts = pa.table([names, [""] * len(names), [""] * len(names)], schema=schemas.DOCUMENTS)
        table = Assigner(self.router, spec)(texts, vector_NM)
        counts = leaf_counts(table["leaf"].to_numpy(), self.router.n_leaves)
        root = folder / "map"
        shards = []
        for first, last in ranges(counts, SHARDS):
            inside = (table["leaf"].to_numpy() >= first) & (table["leaf"].to_numpy() < last)
            part = table.filter(pa.array(inside))
            shards.append(write_shard(root, f"data/{first}.parquet", [part], range(first, last), counts))
        manifest = Manifest(
            version=1,
            parent=None,
            model="none",
            dimension=vector_NM.shape[1],
            metric="inner_product",
            vectors="float16",
            documents=len(vector_NM),
            leaves_per_document=2,
            counts=counts,
            shards=shards,
        )
        leaf_map.publish(root, manifest)
        self.there, self.cache = LeafMap.open(root), folder / "cache"
        os.environ["RAYHIER_CACHE"] = str(self.cache)
        self.seconds = time.monotonic() - began

    def open(self, codec: codecs.Codec) -> tuple[LazyMap, float, int]:
        """Its lists in a codec, the seconds they took, and their bytes with what they are scored again by."""
        shutil.rmtree(self.cache, ignore_errors=True)
        began = time.monotonic()
        leaves = LazyMap(self.there, codec)
        leaves.open()
        files = [path for path in self.cache.rglob("*") if path.suffix in {".faiss", ".npy"}]
        return leaves, time.monotonic() - began, sum(path.stat().st_size for path in files)

    def route(self, query_QM: Floats, beam: int) -> Ints:
        """Leaves [q, β]."""
        return np.asarray(route_all(self.router, torch.from_numpy(query_QM), beam)[0].numpy())

    def system(self, codec: codecs.Codec) -> System:
        """Route, scan, count and score again: all that a server does but for reading what it shows of a document."""
        leaves, seconds, size = self.open(codec)
        number = [
            np.array(self.there.read(shard, ["doc_id"], verify=False)["doc_id"].to_pylist(), dtype=np.int64)
            for shard in self.there.manifest.shards
        ]

        def search(query_QM: Floats, beam: int, threads: int) -> Ints:
            set_threads(threads)
            return numbered(leaves.rows(query_QM, self.route(query_QM, beam), K), number)

        def visited(query_QM: Floats, beam: int) -> float:
            return float(leaves.rows(query_QM, self.route(query_QM, beam), K).visited_Q.mean())

        efforts = widths(self.router.n_leaves)
        return System(f"rayhier, {codec}", self.seconds + seconds, size, efforts, search, visited)


def numbered(rows: Rows, number: Sequence[Ints]) -> Ints:
    """Numbers [q, 10] of the best documents: one in two shards comes once."""
    found = np.full((len(rows.row_QT), K), -1)
    for query, (shards, own) in enumerate(zip(rows.shard_QT.tolist(), rows.row_QT.tolist(), strict=True)):
        best = dict.fromkeys(int(number[shard][row]) for shard, row in zip(shards, own, strict=True) if shard >= 0)
        found[query, : min(K, len(best))] = list(best)[:K]
    return found


def set_threads(threads: int) -> None:
    """Of faiss and of torch."""
    faiss.omp_set_num_threads(threads)
    torch.set_num_threads(threads)


def widths(most: int) -> list[int]:
    """Efforts to try: each a quarter more."""
    found = [1]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, int(found[-1] * 1.25))))
    return found


def size_of(index: Any) -> int:
    """Bytes of a faiss index as it is written."""
    return int(faiss.serialize_index(index).nbytes)


def faiss_lists(vector_NM: Floats, leaves: int) -> Iterator[System]:
    """IVF with exact scores, and with product quantization in registers and a second look."""
    m = vector_NM.shape[1]
    set_threads(2)
    began = time.monotonic()
    centroid_LM = spherical_kmeans(vector_NM, leaves, 0)
    clustered = time.monotonic() - began
    for name in ("faiss IVFFlat", "faiss IVFPQ fast-scan"):
        began = time.monotonic()
        quantizer = faiss.IndexFlatIP(m)
        quantizer.add(centroid_LM)
        if name == "faiss IVFFlat":
            lists: Any = faiss.IndexIVFFlat(quantizer, m, leaves, faiss.METRIC_INNER_PRODUCT)
        else:
            lists = faiss.IndexIVFPQFastScan(quantizer, m, leaves, m // 4, 4, faiss.METRIC_INNER_PRODUCT)
            lists.by_residual = False
        lists.train(vector_NM)
        index: Any = lists if name == "faiss IVFFlat" else faiss.IndexRefineFlat(lists)
        index.add(vector_NM)
        if index is not lists:
            index.k_factor = AGAIN
        index.referenced_objects = [quantizer, lists]
        count_L = np.array([lists.invlists.list_size(leaf) for leaf in range(leaves)])

        def search(query_QM: Floats, effort: int, threads: int, index: Any = index, lists: Any = lists) -> Ints:
            set_threads(threads)
            lists.nprobe = effort
            return np.asarray(index.search(query_QM, K)[1])

        def visited(query_QM: Floats, effort: int, quantizer: Any = quantizer, count_L: Ints = count_L) -> float:
            return float(count_L[quantizer.search(query_QM, effort)[1]].sum(axis=1).mean())

        seconds = clustered + time.monotonic() - began
        yield System(name, seconds, size_of(index), widths(leaves), search, visited)


def graphs(vector_NM: Floats) -> Iterator[System]:
    """HNSW by faiss and by hnswlib."""
    import hnswlib

    n, m = vector_NM.shape
    set_threads(2)
    began = time.monotonic()
    index = faiss.IndexHNSWFlat(m, LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = CONSTRUCTION
    index.add(vector_NM)
    seconds = time.monotonic() - began

    def search(query_QM: Floats, effort: int, threads: int) -> Ints:
        set_threads(threads)
        index.hnsw.efSearch = effort
        return np.asarray(index.search(query_QM, K)[1])

    def visited(query_QM: Floats, effort: int) -> float:
        faiss.cvar.hnsw_stats.reset()
        search(query_QM, effort, 1)
        return float(faiss.cvar.hnsw_stats.ndis / len(query_QM))

    yield System("faiss HNSW", seconds, size_of(index), widths(n // 10), search, visited)
    began = time.monotonic()
    graph = hnswlib.Index(space="ip", dim=m)
    graph.init_index(max_elements=n, ef_construction=CONSTRUCTION, M=LINKS // 2, random_seed=0)
    graph.add_items(vector_NM, num_threads=2)
    seconds = time.monotonic() - began

    def walk(query_QM: Floats, effort: int, threads: int) -> Ints:
        graph.set_ef(max(effort, K))
        return np.asarray(graph.knn_query(query_QM, k=K, num_threads=threads)[0].astype(np.int64))

    yield System("hnswlib", seconds, graph.index_file_size(), widths(n // 10)[9:], walk, lambda *_: float("nan"))


def scann(vector_NM: Floats, leaves: int) -> Iterator[System]:
    """Its tree, its anisotropic quantization, and a second look."""
    from scann.scann_ops.py import scann_ops_pybind

    began = time.monotonic()
    builder = scann_ops_pybind.builder(vector_NM, K, "dot_product")
    tree = builder.tree(leaves, 1, min_partition_size=1, training_sample_size=len(vector_NM))
    index = tree.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(AGAIN * K).build()
    seconds = time.monotonic() - began
    with tempfile.TemporaryDirectory() as folder:
        index.serialize(folder)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*"))

    def search(query_QM: Floats, effort: int, threads: int) -> Ints:
        if threads > 1:
            index.set_num_threads(threads)
            rows = index.search_batched_parallel(query_QM, leaves_to_search=effort)[0]
        else:
            rows = index.search_batched(query_QM, leaves_to_search=effort)[0]
        return np.asarray(rows.astype(np.int64))

    yield System("ScaNN", seconds, size, widths(leaves), search, lambda *_: float("nan"))


def lance(vector_NM: Floats, leaves: int, folder: Path) -> Iterator[System]:
    """A table on disk with an IVF of product codes."""
    import lancedb

    n, m = vector_NM.shape
    began = time.monotonic()
    column = pa.FixedSizeListArray.from_arrays(pa.array(vector_NM.reshape(-1)), m)
    table = lancedb.connect(str(folder / "lance")).create_table(
        "vectors", pa.table([pa.array(np.arange(n)), column], names=["row", "vector"])
    )
    table.create_index(metric="dot", num_partitions=leaves, num_sub_vectors=m // 8, index_type="IVF_PQ")
    seconds = time.monotonic() - began
    size = sum(path.stat().st_size for path in (folder / "lance").rglob("*") if path.is_file())

    def search(query_QM: Floats, effort: int, threads: int) -> Ints:
        del threads
        found = np.full((len(query_QM), K), -1)
        asked = table.search(list(query_QM)) if len(query_QM) > 1 else table.search(query_QM[0])
        got = asked.distance_type("dot").nprobes(effort).refine_factor(AGAIN).limit(K).select(["row", "_distance"])
        rows = got.to_arrow()
        query = rows["query_index"].to_numpy() if "query_index" in rows.column_names else np.zeros(len(rows), int)
        order = np.lexsort((rows["_distance"].to_numpy(), query))
        place = np.arange(len(order)) - np.searchsorted(query[order], query[order])
        found[query[order], place] = rows["row"].to_numpy()[order]
        return found

    yield System("LanceDB IVF_PQ", seconds, size, widths(leaves), search, lambda *_: float("nan"), threads=False)


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rate(system: System, query_QM: Floats, effort: int, batch: int, threads: int) -> float:
    """Queries a second, the median of five rounds."""
    parts = [query_QM[begin : begin + batch] for begin in range(0, len(query_QM), batch)]
    rounds = [timed(lambda: [system.search(part, effort, threads) for part in parts]) for _ in range(5)]
    return len(query_QM) / float(np.median(rounds))


def at_recall(system: System, asked: Asked) -> str:
    """A line of the table: the least effort that finds 95% of the true ten."""
    low, high = 0, len(system.efforts) - 1
    while low < high:
        middle = (low + high) // 2
        found = system.search(asked.query_QM, system.efforts[middle], 2)
        low, high = (low, middle) if asked.recall(found) >= RECALL else (middle + 1, high)
    effort = system.efforts[low]
    recall = asked.recall(system.search(asked.query_QM, effort, 2))
    alone = rate(system, asked.query_QM[:ALONE], effort, 1, 1)
    one, two = (rate(system, asked.query_QM, effort, BATCH, threads) for threads in (1, 2))
    visited = system.visited(asked.query_QM, effort)
    shown = "-" if np.isnan(visited) else f"{visited:,.0f}"
    single = (f"{alone:,.0f}", f"{one:,.0f}") if system.threads else ("-", "-")
    return (
        f"| {system.name} | {effort:,} | {recall:.3f} | {shown} | {single[0]} | {single[1]} | {two:,.0f} "
        f"| {system.bytes / 1e6:,.0f} | {system.seconds:,.0f} |"
    )


def same_lists(ours: Ours, query_QM: Floats) -> list[str]:
    """Queries a second of a leaf map, as parts of faiss', probing the same lists of the same rows.

    Of faiss' float32 lists, and of lists that faiss holds in the same codec, which are not scored again.
    """
    loaded = LoadedMap.read(ours.there, texts=False)
    beam = max(1, round(PROBED * ours.router.n_leaves))
    leaves_QB = ours.route(query_QM, beam)
    leaf_N = loaded.table["leaf"].to_numpy().astype(np.int64)
    what = f"the same {beam} of {ours.router.n_leaves:,} lists"
    heads = [
        f"{threads}, faiss' {lists}" for lists in ("float32", "same codec") for threads in ("1 thread", "2 threads")
    ]
    lines = [f"| {what} | {' | '.join(heads)} |", "|---|---:|---:|---:|---:|"]
    parts = [slice(begin, begin + BATCH) for begin in range(0, len(query_QM), BATCH)]

    def theirs(index: Any) -> None:
        index.nprobe = beam
        for part in parts:
            ivf_tools.search_preassigned(index, query_QM[part], K, leaves_QB[part])

    for codec in codecs.AGAIN:
        leaves, _, _ = ours.open(codec)

        def mine(leaves: LazyMap = leaves) -> None:
            for part in parts:
                leaves.rows(query_QM[part], leaves_QB[part], K)

        cells = []
        for index in (loaded.lists.index, codecs.fill(codec, loaded.vector_NM, leaf_N, ours.router.n_leaves)):
            for threads in (1, 2):
                set_threads(threads)
                mine(), theirs(index)
                ratios = [timed(lambda index=index: theirs(index)) / timed(mine) for _ in range(ROUNDS)]
                cells.append(f"{np.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
        lines.append(f"| {codec} | {' | '.join(cells)} |")
    return lines


def vectors(given: argparse.Namespace) -> tuple[str, Floats, Floats]:
    """What is searched, and what for."""
    if given.synthetic:
        from scale import asked, centres, part, parts

        centre_CM = centres()
        found = np.concatenate([part(number, rows, centre_CM) for number, rows in parts(given.synthetic)])
        return f"{given.synthetic:,} synthetic vectors", found, asked(given.synthetic)[0]
    from quality_collection import Data

    data = Data(given.collection, given.quality.absolute(), "test")
    query_QM = np.concatenate([data.chooses.vector_QM, data.asked.vector_QM])[:QUERIES]
    return f"{given.collection}, {len(data.documents.ids):,} documents", data.documents.vector_NM, query_QM


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Searching the same vectors.")
    parser.add_argument("--collection", default="oewn_examples")
    parser.add_argument("--synthetic", type=lambda text: int(text.replace("_", "")), help="so many synthetic vectors")
    parser.add_argument("--leaves", type=int, help="lists of every system (default: the router's own choice)")
    parser.add_argument("--quality", type=Path, default=Path("runs/quality"), help="where bench-quality keeps vectors")
    parser.add_argument("--only", help="systems whose name holds this")
    given = parser.parse_args()
    what, vector_NM, query_QM = vectors(given)
    vector_NM, query_QM = (np.ascontiguousarray(one, dtype=np.float32) for one in (vector_NM, query_QM))
    exact = faiss.IndexFlatIP(vector_NM.shape[1])
    exact.add(vector_NM)
    asked = Asked(query_QM, exact.search(query_QM, K)[1])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        leaves = given.leaves or 25 * round(len(vector_NM) ** 0.5)
        print(f"{what}, {vector_NM.shape[1]} dimensions, {len(query_QM):,} queries, {leaves:,} lists\n")
        set_threads(2)
        ours = Ours(vector_NM, leaves, folder)
        print("Queries a second as parts of faiss IVFFlat's, batches of 64, median (range) of seven paired rounds:\n")
        print("\n".join(same_lists(ours, query_QM)), flush=True)
        print(f"\nAt {RECALL:.0%} of the true {K} nearest:\n")
        print("| system | effort | recall | visited | 1 thread, batch 1 | batch 64 | 2 threads | MB | built, s |")
        print(f"|---|{'---:|' * 8}")
        systems: Iterator[Callable[[], Iterator[System]]] = iter(
            [
                lambda: faiss_lists(vector_NM, leaves),
                lambda: graphs(vector_NM),
                lambda: scann(vector_NM, leaves),
                lambda: lance(vector_NM, leaves, folder),
                lambda: (ours.system(codec) for codec in codecs.AGAIN),
            ]
        )
        for made in systems:
            for system in made():
                if given.only is None or given.only in system.name:
                    print(at_recall(system, asked), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
