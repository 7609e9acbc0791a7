"""What benchmarks/search.py compares: faiss, hnswlib, ScaNN and LanceDB, each as it is built and asked."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import leaf_maps
from benchmarks.machine import set_threads
from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.cluster.library import faiss
from rayhier.model.encoded import Encoded
from rayhier.model.router import route_all
from rayhier.search.scan import LeafScan, RankedRows
from rayhier.spec.search import Codec

K = 10
LINKS, CONSTRUCTION = 32, 100
"""Links of a graph's nodes, and candidates while it is built."""
SHARDS = 4
"""Shards of the leaf map."""
AGAIN = 8
"""Rows scored again for each wanted, of faiss' and LanceDB's product quantization."""

Search = Callable[[Floats, int, int], Ints]
"""Queries, effort and threads -> rows [q, 10]."""


@dataclass(frozen=True)
class System:
    """One index, and the function that searches it."""

    name: str
    seconds: float
    bytes: int
    efforts: Sequence[int]
    search: Search
    visited: Callable[[Floats, int], float] = lambda *_: float("nan")
    """Documents scored a query, of those the index holds; NaN where a library does not say."""
    threads: bool = True
    """Whether the number of threads is ours to say."""


def widths(most: int) -> list[int]:
    """Efforts to try: each a quarter more."""
    found = [1]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, int(found[-1] * 1.25))))
    return found


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
            index: Any = faiss.IndexIVFFlat(quantizer, m, leaves, faiss.METRIC_INNER_PRODUCT)
            lists = index
        else:
            lists = faiss.IndexIVFPQFastScan(quantizer, m, leaves, m // 4, 4, faiss.METRIC_INNER_PRODUCT)
            lists.by_residual = False
            index = faiss.IndexRefineFlat(lists)
            index.k_factor = AGAIN
        lists.train(vector_NM)
        index.add(vector_NM)
        index.referenced_objects = [quantizer, lists]
        count_L = np.array([lists.invlists.list_size(leaf) for leaf in range(leaves)])

        def visited(query_QM: Floats, effort: int, quantizer: Any = quantizer, count_L: Ints = count_L) -> float:
            return float(count_L[quantizer.search(query_QM, effort)[1]].sum(axis=1).mean())

        seconds = clustered + time.monotonic() - began
        search = partial(faiss_search, index, lists, "nprobe")
        yield System(name, seconds, size_of(index), widths(leaves), search, visited)


def faiss_search(index: Any, options: Any, name: str, query_QM: Floats, effort: int, threads: int) -> Ints:
    """Search an index of faiss, whose effort is an attribute of its lists or graph."""
    set_threads(threads)
    setattr(options, name, effort)
    return np.asarray(index.search(query_QM, K)[1])


def size_of(index: Any) -> int:
    """Bytes of a faiss index as it is written."""
    return int(faiss.serialize_index(index).nbytes)


def faiss_graph(vector_NM: Floats) -> Iterator[System]:
    """HNSW by faiss."""
    n, m = vector_NM.shape
    set_threads(2)
    began = time.monotonic()
    index = faiss.IndexHNSWFlat(m, LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = CONSTRUCTION
    index.add(vector_NM)
    seconds = time.monotonic() - began
    search, counted = partial(faiss_search, index, index.hnsw, "efSearch"), faiss.cvar

    def visited(query_QM: Floats, effort: int) -> float:
        stats: Any = counted.hnsw_stats  # type: ignore[attr-defined]
        stats.reset()
        search(query_QM, effort, 1)
        return float(stats.ndis / len(query_QM))

    yield System("faiss HNSW", seconds, size_of(index), widths(n // 10), search, visited)


def hnswlib_graph(vector_NM: Floats) -> Iterator[System]:
    """HNSW by hnswlib."""
    import hnswlib

    n, m = vector_NM.shape
    began = time.monotonic()
    graph = hnswlib.Index(space="ip", dim=m)
    graph.init_index(max_elements=n, ef_construction=CONSTRUCTION, M=LINKS // 2, random_seed=0)
    graph.add_items(vector_NM, num_threads=2)
    seconds = time.monotonic() - began

    def walk(query_QM: Floats, effort: int, threads: int) -> Ints:
        graph.set_ef(max(effort, K))
        return np.asarray(graph.knn_query(query_QM, k=K, num_threads=threads)[0].astype(np.int64))

    yield System("hnswlib", seconds, graph.index_file_size(), widths(n // 10)[9:], walk)


def scann(vector_NM: Floats, leaves: int) -> Iterator[System]:
    """ScaNN: its tree, its anisotropic quantization, and a second look."""
    from scann.scann_ops.py import scann_ops_pybind

    began = time.monotonic()
    builder = scann_ops_pybind.builder(vector_NM, K, "dot_product")
    tree = builder.tree(leaves, 1, min_partition_size=1, training_sample_size=len(vector_NM))
    index = tree.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(AGAIN * K).build()
    seconds = time.monotonic() - began
    with tempfile.TemporaryDirectory() as folder:
        index.serialize(folder)
        size = folder_size(Path(folder))

    def search(query_QM: Floats, effort: int, threads: int) -> Ints:
        if threads > 1:
            index.set_num_threads(threads)
        ask = index.search_batched_parallel if threads > 1 else index.search_batched
        return np.asarray(ask(query_QM, leaves_to_search=effort)[0].astype(np.int64))

    yield System("ScaNN", seconds, size, widths(leaves), search)


def folder_size(folder: Path, *endings: str) -> int:
    """Bytes of the files below a folder whose names end so."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name.endswith(endings or ""))
    return sum(path.stat().st_size for path in files)


def lance(vector_NM: Floats, leaves: int, folder: Path) -> Iterator[System]:
    """LanceDB: a table on disk with an IVF of product codes."""
    import lancedb

    n, m = vector_NM.shape
    began = time.monotonic()
    column = pa.FixedSizeListArray.from_arrays(pa.array(vector_NM.reshape(-1)), m)
    vectors = pa.table([pa.array(np.arange(n)), column], names=["row", "vector"])
    table = lancedb.connect(str(folder / "lance")).create_table("vectors", vectors)
    table.create_index(metric="dot", num_partitions=leaves, num_sub_vectors=m // 8, index_type="IVF_PQ")
    seconds = time.monotonic() - began

    def search(query_QM: Floats, effort: int, _threads: int) -> Ints:
        found = np.full((len(query_QM), K), -1)
        query = table.search(list(query_QM)) if len(query_QM) > 1 else table.search(query_QM[0])
        query = query.distance_type("dot").nprobes(effort).refine_factor(AGAIN).limit(K).select(["row", "_distance"])
        rows = query.to_arrow()
        of = rows["query_index"].to_numpy() if "query_index" in rows.column_names else np.zeros(len(rows), int)
        order = np.lexsort((rows["_distance"].to_numpy(), of))
        place = np.arange(len(order)) - np.searchsorted(of[order], of[order])
        found[of[order], place] = rows["row"].to_numpy()[order]
        return found

    yield System("LanceDB IVF_PQ", seconds, folder_size(folder / "lance"), widths(leaves), search, threads=False)


class Ours:
    """A leaf map of the vectors and the router that fills it."""

    def __init__(self, vector_NM: Floats, leaves: int, folder: Path) -> None:
        began = time.monotonic()
        spec = leaf_maps.job("search", folder, branching=leaves)
        self.router = leaf_maps.settled(spec, vector_NM, len(vector_NM))
        texts = leaf_maps.texts([f"{row:09d}" for row in range(len(vector_NM))])
        self.there = leaf_maps.write(folder / "map", self.router, spec, texts, vector_NM, SHARDS)
        self.cache = folder / "cache"
        os.environ["RAYHIER_CACHE"] = str(self.cache)
        self.seconds = time.monotonic() - began

    def open(self, codec: Codec) -> tuple[LeafScan, float, int]:
        """Its lists in a codec, the seconds they took, and their bytes with what they are scored again by."""
        shutil.rmtree(self.cache, ignore_errors=True)
        began = time.monotonic()
        leaves = LeafScan.mapped(self.there, codec)
        leaves.open()
        return leaves, time.monotonic() - began, folder_size(self.cache, ".faiss", ".npy")

    def route(self, query_QM: Floats, beam: int) -> Ints:
        """Leaves [q, β] that queries visit."""
        return route_all(self.router, Encoded.of(query_QM), beam)[0].numpy()

    def system(self, codec: Codec) -> System:
        """Route, scan, count and score again: all that a server does but for reading what it shows of a document."""
        leaves, seconds, size = self.open(codec)
        begin_S = np.cumsum([0, *(shard.rows for shard in self.there.manifest.shards)])
        number_A = np.array(leaf_maps.rows(self.there)[0]).astype(np.int64)

        def search(query_QM: Floats, beam: int, threads: int) -> Ints:
            set_threads(threads)
            return numbered(leaves.candidates(query_QM, self.route(query_QM, beam), K).rows, begin_S, number_A)

        def visited(query_QM: Floats, beam: int) -> float:
            return float(leaves.candidates(query_QM, self.route(query_QM, beam), K).visited_Q.mean())

        efforts = widths(self.router.n_leaves)
        return System(f"rayhier, {codec}", self.seconds + seconds, size, efforts, search, visited)


def numbered(rows: RankedRows, begin_S: Ints, number_A: Ints) -> Ints:
    """Numbers [q, 10] of the best documents: one in two shards comes once."""
    found = np.full((len(rows.row_QT), K), -1)
    for query, (shard_T, row_T) in enumerate(zip(rows.segment_QT, rows.row_QT, strict=True)):
        best = dict.fromkeys(number_A[begin_S[shard_T] + row_T][shard_T >= 0].tolist())
        found[query, : min(K, len(best))] = list(best)[:K]
    return found
