"""Systems that benchmarks/search.py and large.py compare: how rayhier and each other system is built and searched."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from benchmarks import leaf_maps
from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss, ivf_tools
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import open_router
from rayhier.model.router import opened, save_router
from rayhier.python import Results, open_index
from rayhier.search.index import index_root
from rayhier.search.routing.coded_router import CodedRouter, first_pass_before
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.spec.index import IndexSpec
from rayhier.storage import columns, current
from rayhier.storage.leaf_map import LeafMap, Manifest
from rayhier.storage.paths import locate

K = 10
LINKS, CONSTRUCTION = 32, 100
"""Links of a graph's nodes, and candidates while it is built."""
SHARDS, A_SHARD = 4, 700_000
"""Fewest shards of the leaf map, and about the most vectors of one."""
LISTED = (40, 60, 80, 120, 160, 240, 480)
"""Numbers of rows that are scored again, of which the fastest is taken on dev."""
SAMPLED = 64
"""Vectors of the sample from which centroids are computed, for each list."""
BUILD_GB = 12
"""Memory in which DiskANN builds its graph; of more vectors it builds parts, and joins them."""
CACHED_NODES = 50_000
"""Most nodes of DiskANN's graph that it holds in memory."""

Search = Callable[[Floats, Any], Ints]
"""Queries [q, m] and an effort -> numbers of documents [q, 10]."""
Answer = Callable[[Floats, Any], object]
"""Queries [q, m] and an effort -> what an application gets for each query."""


@dataclass(frozen=True)
class System:
    """One index, and the function that searches it."""

    name: str
    seconds: float
    resident: int
    """Bytes that the index holds in memory, and of mapped files those that searches read all of over time."""
    efforts: Sequence[Sequence[Any]]
    """Ladders of efforts, each from the least to the most; of several ladders the fastest is taken on dev."""
    search: Search
    threads: bool = True
    """Whether the number of threads is ours to say."""
    answer: Answer | None = None
    """Searches as users call it. None: users call `search`, and look ids up."""

    def answering(self, ids: Sequence[str]) -> Answer:
        """Return the function whose time counts: it finds ids, and not only numbers."""

        def looked_up(query_QM: Floats, effort: Any) -> object:
            return [[ids[number] for number in numbers] for numbers in self.search(query_QM, effort).tolist()]

        return self.answer or looked_up


def ladder(most: int, first: int = 1) -> list[int]:
    """Efforts to try: each an eighth more."""
    efforts = [first]
    while efforts[-1] < most:
        efforts.append(min(most, max(efforts[-1] + 1, int(efforts[-1] * 1.125))))
    return efforts


def coded_bytes(manifest: Manifest) -> float:
    """Bytes of all codes: a quarter of a byte for each number, and 12 bytes per row, or 20 with second leaves."""
    return manifest.rows * (manifest.dimension / 4 + (20 if manifest.rows > manifest.documents else 12))


def size_of(index: Any) -> int:
    """Bytes of a faiss index as it is written."""
    return int(faiss.serialize_index(index).nbytes)


def centroids(vector_NM: np.ndarray, lists: int) -> Floats:
    """Centroids [lists, m] of a sample of the vectors, by faiss."""
    m, rng = vector_NM.shape[1], np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(vector_NM))[: SAMPLED * lists])
    means = faiss.Kmeans(m, lists, niter=10, spherical=True, max_points_per_centroid=SAMPLED, seed=1)
    means.train(np.asarray(vector_NM[rows], np.float32))
    return np.asarray(means.centroids)


def added(index: Any, vector_NM: np.ndarray) -> Any:
    """Add all vectors to a faiss index, some at a time."""
    for begin in range(0, len(vector_NM), 1 << 16):
        index.add(np.asarray(vector_NM[begin : begin + (1 << 16)], np.float32))
    return index


def faiss_search(index: Any, options: Any, name: str, query_QM: Floats, effort: int) -> Ints:
    """Search an index of faiss, whose effort is an attribute of its lists or graph."""
    setattr(options, name, effort)
    return np.asarray(index.search(np.ascontiguousarray(query_QM), K)[1])


def faiss_graph(vector_NM: np.ndarray, *, half: bool = False) -> Iterator[System]:
    """HNSW by faiss, over 32-bit vectors or, with `half`, over 16-bit ones."""
    n, m = vector_NM.shape
    began, library = time.monotonic(), cast("Any", faiss)
    index: Any = library.IndexHNSWFlat(m, LINKS, faiss.METRIC_INNER_PRODUCT)
    if half:
        index = library.IndexHNSWSQ(m, faiss.ScalarQuantizer.QT_fp16, LINKS, faiss.METRIC_INNER_PRODUCT)
        index.train(np.asarray(vector_NM[:1], np.float32))
    index.hnsw.efConstruction = CONSTRUCTION
    added(index, vector_NM)
    seconds = time.monotonic() - began
    search = partial(faiss_search, index, index.hnsw, "efSearch")
    yield System("faiss HNSW, float16" if half else "faiss HNSW", seconds, size_of(index), [ladder(n // 10, K)], search)


def flat(row_LM: Floats) -> Any:
    """Rows of lists, which are compared with all queries in full."""
    quantizer: Any = faiss.IndexFlatIP(row_LM.shape[1])
    quantizer.add(row_LM)
    return quantizer


def exact_lists(quantizer: Any) -> Any:
    """Empty lists of 16-bit vectors."""
    kind, measure = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    index: Any = faiss.IndexIVFScalarQuantizer(quantizer, quantizer.d, quantizer.ntotal, kind, measure, False)
    index.referenced_objects = [quantizer]
    index.is_trained = True
    return index


def coded_lists(quantizer: Any, vector_NM: np.ndarray) -> tuple[Any, Any]:
    """Empty lists of four-bit codes, trained on some of the vectors: with 16-bit vectors behind them, and alone."""
    m, measure = quantizer.d, faiss.METRIC_INNER_PRODUCT
    inverted: Any = faiss.IndexIVFPQFastScan(quantizer, m, quantizer.ntotal, m // 4, 4, measure)
    inverted.by_residual = False
    again = faiss.IndexScalarQuantizer(m, faiss.ScalarQuantizer.QT_fp16, measure)
    index: Any = faiss.IndexRefine(inverted, again)
    index.referenced_objects, inverted.referenced_objects = [inverted, again], [quantizer]
    index.train(np.asarray(vector_NM[:: max(1, len(vector_NM) // 100_000)], np.float32))
    return index, inverted


def probe(index: Any, inverted: Any, query_QM: Floats, effort: tuple[int, int]) -> Ints:
    """Search so many lists, and score so many rows again."""
    inverted.nprobe, listed = effort
    index.k_factor = listed / K
    return np.asarray(index.search(np.ascontiguousarray(query_QM), K)[1])


def faiss_lists(vector_NM: np.ndarray, lists: int) -> Iterator[System]:
    """IVF by faiss: exact scores; and four-bit codes, of which the best rows are scored again."""
    began = time.monotonic()
    centroid_LM = centroids(vector_NM, lists)
    clustered = time.monotonic() - began
    exact = added(exact_lists(flat(centroid_LM)), vector_NM)
    search, seconds = partial(faiss_search, exact, exact, "nprobe"), time.monotonic() - began
    yield System("faiss IVF, float16", seconds, size_of(exact), [ladder(lists)], search)
    began = time.monotonic()
    index, inverted = coded_lists(flat(centroid_LM), vector_NM)
    added(index, vector_NM)
    seconds = clustered + time.monotonic() - began
    search = partial(probe, index, inverted)
    yield System("faiss IVF, four-bit codes", seconds, size_of(index), probes(lists), search)


def probes(most: int) -> list[list[tuple[int, int]]]:
    """Ladders of lists to probe, up to so many, one for each number of rows that are scored again."""
    return [[(probed, listed) for probed in ladder(most)] for listed in LISTED]


def vamana(vector_NM: np.ndarray) -> Iterator[System]:
    """Intel's scalable-vs: its graph over 16-bit vectors. Its codes, LVQ, run on Intel's processors alone."""
    import svs

    n, m = vector_NM.shape
    began = time.monotonic()
    # As its documentation has it for inner products: alpha below 1.
    settings = svs.VamanaBuildParameters(graph_max_degree=2 * LINKS, window_size=2 * CONSTRUCTION, alpha=0.95)
    vectors = np.ascontiguousarray(vector_NM, np.float16)
    graph = svs.Vamana.build(settings, vectors, svs.DistanceType.MIP, num_threads=2)
    seconds = time.monotonic() - began

    def walk(query_QM: Floats, effort: int) -> Ints:
        graph.num_threads = faiss.omp_get_max_threads()
        graph.search_window_size = effort
        return np.asarray(graph.search(np.asarray(query_QM, np.float32), K)[0]).astype(np.int64)

    yield System("scalable-vs, float16", seconds, n * (2 * m + 8 * LINKS), [ladder(n // 10, K)], walk)


def symphony(vector_NM: np.ndarray) -> Iterator[System]:
    """SymphonyQG: a graph whose nodes hold one-bit codes of their neighbours, over vectors and over codes of 8 bits."""
    from rabitqlib import SymqgIndex

    vectors = np.asarray(vector_NM, np.float32)
    for name, bits in (("SymphonyQG", 0), ("SymphonyQG, 8 bit", 8)):
        began = time.monotonic()
        graph = SymqgIndex(vectors.shape[1], LINKS, "ip", bits)
        graph.build(vectors, 2 * CONSTRUCTION, 2)
        seconds = time.monotonic() - began
        with tempfile.NamedTemporaryFile() as file:
            graph.save(file.name)
            size = Path(file.name).stat().st_size

        def walk(query_QM: Floats, effort: int, graph: Any = graph) -> Ints:
            return np.asarray(graph.search(query_QM, K, effort, faiss.omp_get_max_threads())[0], np.int64)

        yield System(name, seconds, size, [ladder(len(vectors) // 10, K)], walk)


def lorann(vector_NM: np.ndarray, lists: int) -> Iterator[System]:
    """LoRANN: clusters whose scores are predicted by regressions of reduced rank, and the best again."""
    from lorann import IP, LorannIndex

    n, m = vector_NM.shape
    vectors = np.asarray(vector_NM, np.float32)
    began = time.monotonic()
    index = LorannIndex(data=vectors, n_clusters=lists, global_dim=128, distance=IP)
    index.build(n_threads=2)
    seconds = time.monotonic() - began

    def search(query_QM: Floats, effort: tuple[int, int]) -> Ints:
        probed, listed = effort
        found = index.search(query_QM, K, probed, listed, n_threads=faiss.omp_get_max_threads())
        return np.asarray(found).astype(np.int64)

    yield System("LoRANN", seconds, 4 * n * m + 36 * n, probes(lists), search)


def scann(vector_NM: np.ndarray, lists: int) -> Iterator[System]:
    """ScaNN by scann-core: its tree with SOAR's second leaf, its anisotropic quantization, and the best again.

    The package `scann` has the same modules, but its kernels for AVX-512 never run. It does not count as scann-core.
    """
    version("scann-core")  # ModuleNotFoundError if it is not installed
    from scann.scann_ops.py import scann_ops_pybind

    began = time.monotonic()
    data = np.asarray(vector_NM, np.float32)
    builder = scann_ops_pybind.builder(data, K, "dot_product")
    tree = builder.tree(
        lists,
        1,
        min_partition_size=1,
        training_sample_size=min(len(data), SAMPLED * lists),
        soar_lambda=1.5,
        overretrieve_factor=2.0,
    )
    index = tree.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(120).build()
    seconds = time.monotonic() - began
    with tempfile.TemporaryDirectory() as folder:
        index.serialize(folder)
        size = folder_size(Path(folder))

    def search(query_QM: Floats, effort: tuple[int, int]) -> Ints:
        probed, listed = effort
        threads = faiss.omp_get_max_threads()
        if threads > 1:
            index.set_num_threads(threads)
        ask = index.search_batched_parallel if threads > 1 else index.search_batched
        rows = ask(query_QM, leaves_to_search=probed, pre_reorder_num_neighbors=listed)[0]
        return np.asarray(rows.astype(np.int64))

    yield System("ScaNN with SOAR, scann-core", seconds, size, probes(lists), search)


def folder_size(folder: Path, *endings: str) -> int:
    """Bytes of the files below a folder whose names end so."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name.endswith(endings or ""))
    return sum(path.stat().st_size for path in files)


def lance(vector_NM: np.ndarray, lists: int, folder: Path) -> Iterator[System]:
    """LanceDB: a table on disk with an IVF of product codes."""
    import lancedb

    n, m = vector_NM.shape
    there, took = lancedb.connect(str(folder / "lance")), folder / "lance.done"
    if not took.exists():
        began = time.monotonic()
        schema = pa.schema([("row", pa.int64()), ("vector", pa.list_(pa.float32(), m))])

        def parts() -> Iterator[pa.RecordBatch]:
            for begin in range(0, n, 1 << 16):
                some = np.asarray(vector_NM[begin : begin + (1 << 16)], np.float32)
                column = pa.FixedSizeListArray.from_arrays(pa.array(some.reshape(-1)), m)
                yield pa.record_batch([pa.array(np.arange(begin, begin + len(some))), column], schema=schema)

        table = there.create_table("vectors", parts(), schema, mode="overwrite")
        table.create_index(metric="dot", num_partitions=lists, num_sub_vectors=m // 8, index_type="IVF_PQ")
        took.write_text(f"{time.monotonic() - began:.0f}\n")
    table, seconds = there.open_table("vectors"), float(took.read_text())

    def search(query_QM: Floats, effort: int) -> Ints:
        number_QK = np.full((len(query_QM), K), -1)
        query = table.search(list(query_QM)) if len(query_QM) > 1 else table.search(query_QM[0])
        query = query.distance_type("dot").nprobes(effort).refine_factor(12).limit(K).select(["row", "_distance"])
        rows = query.to_arrow()
        of = rows["query_index"].to_numpy() if "query_index" in rows.column_names else np.zeros(len(rows), int)
        order = np.lexsort((rows["_distance"].to_numpy(), of))
        place = np.arange(len(order)) - np.searchsorted(of[order], of[order])
        number_QK[of[order], place] = rows["row"].to_numpy()[order]
        return number_QK

    yield System("LanceDB IVF_PQ", seconds, 0, [ladder(lists)], search, threads=False)


def diskann(vector_NM: np.ndarray, folder: Path) -> Iterator[System]:
    """DiskANN: a graph on disk with the vectors in it, which a query walks by product codes in memory.

    It reads past the page cache, but for the nodes that it holds itself.
    """
    import diskannpy

    n, m = vector_NM.shape
    there, took = folder / "diskann", folder / "diskann.done"
    if not took.exists():
        shutil.rmtree(there, ignore_errors=True)
        there.mkdir()
        began, vectors = time.monotonic(), there / "vectors.bin"
        write_floats(vectors, vector_NM)
        diskannpy.build_disk_index(
            str(vectors),
            "l2",  # of unit vectors, nearest first, as by inner products
            str(there),
            complexity=2 * CONSTRUCTION,
            graph_degree=2 * LINKS,
            search_memory_maximum=n * (m // 4 + 0.5) / (1 << 30),  # of which it makes codes of m / 4 bytes
            build_memory_maximum=BUILD_GB,
            num_threads=2,
            vector_dtype=np.float32,
        )
        vectors.unlink()
        took.write_text(f"{time.monotonic() - began:.0f}\n")
    cached = min(CACHED_NODES, n // 20)
    graph = diskannpy.StaticDiskIndex(str(there), num_threads=2, num_nodes_to_cache=cached)

    def walk(query_QM: Floats, effort: int) -> Ints:
        # Also for one query: its other call was built for an older numpy, and returns one number ten times.
        found = graph.batch_search(query_QM, K, effort, faiss.omp_get_max_threads(), beam_width=4)
        return np.asarray(found.identifiers).astype(np.int64)

    resident = n * (m // 4) + cached * (4 * m + 8 * LINKS)
    yield System("DiskANN", float(took.read_text()), resident, [ladder(n // 10, K)], walk)


def write_floats(path: Path, vector_NM: np.ndarray) -> None:
    """Write vectors [n, m] to a file as DiskANN reads it: n and m in 32 bits each, then float32."""
    with path.open("wb") as file:
        file.write(np.array(vector_NM.shape, np.uint32).tobytes())
        for begin in range(0, len(vector_NM), 1 << 16):
            file.write(np.asarray(vector_NM[begin : begin + (1 << 16)], np.float32).tobytes())


def faiss_on_disk(ours: "Ours", folder: Path) -> Iterator[System]:
    """IVF by faiss in a mapped file, with the centroids and the lists that our leaf map has."""
    path, took = folder / "lists.faiss", folder / "lists.done"
    if not took.exists():
        began = time.monotonic()
        centroid_LM = ours.router.cells.centroid_LM
        index = exact_lists(flat(centroid_LM))
        for shard in ours.there.manifest.shards:
            rows = ours.there.read(shard, ["doc_id", "leaf", "vector"], verify=False)
            ids = rows["doc_id"].cast(pa.int64()).to_numpy()
            leaves = np.ascontiguousarray(rows["leaf"].to_numpy(), np.int64)
            ivf_tools.add_preassigned(index, np.asarray(columns.matrix(rows["vector"]), np.float32), leaves, ids)
        faiss.write_index(index, str(path))
        took.write_text(f"{ours.seconds + time.monotonic() - began:.0f}\n")
    mapped: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
    search = partial(faiss_search, mapped, mapped, "nprobe")
    yield System("faiss IVF on disk, float16", float(took.read_text()), 0, [ladder(mapped.nlist)], search)


class Ours:
    """A leaf map of the vectors, and the router that fills it: k-means leaves, which no query has taught."""

    def __init__(self, vector_NM: np.ndarray, lists: int, folder: Path) -> None:
        """Build the leaf map, unless the folder has it."""
        began = time.monotonic()
        self.folder = folder / f"map-{lists}"
        job = leaf_maps.job("search", folder, branching=lists)
        spec = job.model_copy(update={"index": IndexSpec(leaves_per_document=1)})
        if not (self.folder / "done").exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            rows = np.sort(np.random.default_rng(0).permutation(len(vector_NM))[: SAMPLED * lists])
            sample_NM = np.asarray(vector_NM[rows], np.float32)
            router = leaf_maps.settled(spec, sample_NM, len(vector_NM))
            save_router(router, self.folder / "router")
            texts = leaf_maps.texts([f"{row:09d}" for row in range(len(vector_NM))])
            shards = max(SHARDS, len(vector_NM) // A_SHARD)
            leaf_maps.write(self.folder / "map", opened(router), spec, texts, vector_NM, shards)
            (self.folder / "done").write_text(f"{time.monotonic() - began:.0f}\n")
        self.seconds = float((self.folder / "done").read_text())
        self.there = LeafMap.open(self.folder / "map")
        coded = first_pass_before(open_router(self.folder / "router"))
        if not isinstance(coded, CodedRouter):
            raise TypeError(f"{lists} lists: too few for a first pass by codes")
        self.router = coded
        os.environ["RAYHIER_CACHE"] = str(folder / "cache")

    def leaves(self, *, warm: bool = True) -> System:
        """Route, scan codes in the leaves, and score the best again: all but reading what is shown of a document."""
        began = time.monotonic()
        scan, router = LeafScan.mapped(self.there), self.router
        scan.open()
        if warm:
            scan.warm(float("inf"))
        number_N = self.numbers(scan)

        def search(query_QM: Floats, effort: tuple[int, int]) -> Ints:
            beam, listed = effort
            leaves_QB = router.choose(Encoded(query_QM), beam)
            row_QK = scan.candidates(query_QM, leaves_QB, K, listed)[0].row_QT
            return np.where(row_QK < 0, -1, number_N[row_QK])

        ladders = probes(self.router.n_leaves // 4)
        resident = coded_bytes(self.there.manifest) + 4 * self.router.n_leaves * self.there.manifest.dimension
        return System("rayhier, leaves", self.seconds + time.monotonic() - began, int(resident), ladders, search)

    def numbers(self, scan: LeafScan) -> np.ndarray:
        """Numbers [n] of the documents of all rows, in a mapped file: what an application keeps beside its index."""
        path = self.folder / "numbers.npy"
        if not path.exists():
            ids = [segment.ids().cast(pa.int64()).to_numpy().astype(np.int32) for segment in scan.segments]
            np.save(path, np.concatenate(ids))
        return np.asarray(np.load(path, mmap_mode="r"))


def product(workdir: Path, ids: Sequence[str]) -> System:
    """Open the trained index with its own leaves as users do. Results have ids, titles and texts."""
    index, place = open_index(workdir), locate(str(workdir))
    now, number_of = current.read(place), {id_: number for number, id_ in enumerate(ids)}

    def answer(query_QM: Floats, beam: int) -> list[Results]:
        if len(query_QM) == 1:
            return [index.search(query_QM[0], k=K, beam=beam)]
        return index.search_batch(query_QM, k=K, beam=beam)

    def search(query_QM: Floats, beam: int) -> Ints:
        number_QK = np.full((len(query_QM), K), -1)
        for number_K, results in zip(number_QK, answer(query_QM, beam), strict=True):
            number_K[: len(results)] = [number_of[hit.id] for hit in results]
        return number_QK

    manifest = LeafMap.open(index_root(place, now)).manifest
    resident = coded_bytes(manifest) + 4 * manifest.leaves * manifest.dimension
    seconds = current.artifact(place, now, "index").record.seconds
    return System("rayhier", seconds, int(resident), [ladder(manifest.leaves // 4)], search, answer=answer)
