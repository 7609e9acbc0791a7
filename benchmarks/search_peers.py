"""What benchmarks/search.py compares: faiss, hnswlib, ScaNN and LanceDB, each as it is built and asked."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.machine import set_threads
from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.cluster.library import faiss

K = 10
LINKS, CONSTRUCTION = 32, 100
"""Links of a graph's nodes, and candidates while it is built."""
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
    visited: Callable[[Floats, int], float]
    """Documents scored a query, of those the index holds."""
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

    def search(query_QM: Floats, effort: int, threads: int) -> Ints:
        set_threads(threads)
        index.hnsw.efSearch = effort
        return np.asarray(index.search(query_QM, K)[1])

    counted: Any = faiss.cvar
    stats = counted.hnsw_stats

    def visited(query_QM: Floats, effort: int) -> float:
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

    yield System("hnswlib", seconds, graph.index_file_size(), widths(n // 10)[9:], walk, lambda *_: float("nan"))


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
    """LanceDB: a table on disk with an IVF of product codes."""
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
        query = table.search(list(query_QM)) if len(query_QM) > 1 else table.search(query_QM[0])
        query = query.distance_type("dot").nprobes(effort).refine_factor(AGAIN).limit(K).select(["row", "_distance"])
        rows = query.to_arrow()
        of = rows["query_index"].to_numpy() if "query_index" in rows.column_names else np.zeros(len(rows), int)
        order = np.lexsort((rows["_distance"].to_numpy(), of))
        place = np.arange(len(order)) - np.searchsorted(of[order], of[order])
        found[of[order], place] = rows["row"].to_numpy()[order]
        return found

    yield System("LanceDB IVF_PQ", seconds, size, widths(leaves), search, lambda *_: float("nan"), threads=False)
