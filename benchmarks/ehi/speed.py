"""Milliseconds of a query in trained leaves, beside faiss's k-means IVF with as many lists, and a scan of everything.

One query at a time, on one thread, for its best hundred; its vector is given. Works take turns in rounds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.ehi.bench import DEPTH, Bench, Trained
from benchmarks.ehi.rows import Row
from benchmarks.machine import medians
from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.cluster.library import faiss
from rayhier.dataset.ranking import whole_scan
from rayhier.evaluate.curve import beams
from rayhier.search.lists import LeafLists

SHARES = (0.05, 0.1, 0.2)
"""Shares of the documents that a query is to visit on average, at least."""
QUERIES, ROUNDS, SEED = 100, 15, 0


@dataclass(frozen=True)
class Speed:
    """What a search by one beam takes and finds."""

    name: str
    beam: int
    visited: float
    """Mean share of the documents that a query visits."""
    recall: float
    """R@100 of the test queries."""
    ms: float


Search = Callable[[Floats], tuple[Floats, Ints]]


def speeds(bench: Bench, row: Row) -> list[Speed]:
    """Time a row's leaves and lists of k-means, at the least beams that visit the shares, and exact search."""
    own = bench.trained(row, SEED)
    settings = [("EHI", beam, *ehi(own, beam)) for beam in least_beams(own.router.n_leaves, partial(visits_ehi, own))]
    lists = ivf(own)
    least = least_beams(lists.nlist, partial(visits_ivf, lists, own.query_QM))
    settings += [("k-means IVF of faiss", beam, *probing(lists, own.query_QM, beam)) for beam in least]
    scanned = scanning(own, lists)
    settings += [
        ("k-means, scanned as EHI's leaves", beam, partial(scanned, beam), visits)
        for _, beam, _, visits in settings[-3:]
    ]
    scan = faiss.IndexFlatIP(own.documents.shape[1])
    scan.add(own.documents)
    settings.append(("exact search of faiss", 0, partial(flat, scan), 1.0))
    ms = timed([search for _, _, search, _ in settings], own.query_QM)
    return [
        Speed(name, beam, visited, recall(bench, search, own.query_QM), own_ms)
        for (name, beam, search, visited), own_ms in zip(settings, ms, strict=True)
    ]


def least_beams(leaves: int, visits: Callable[[int], float]) -> list[int]:
    """The least beams that visit each share on average."""
    return [next(beam for beam in beams(leaves) if visits(beam) >= share) for share in SHARES]


def ehi(own: Trained, beam: int) -> tuple[Search, float]:
    """The product's own router and scan of leaves, and the share that a query visits."""
    now = own.joint.snapshot()

    def search(query_QM: Floats) -> tuple[Floats, Ints]:
        return now.lists.scan(query_QM, now.leaves(query_QM, beam), DEPTH)

    return search, visits_ehi(own, beam)


def visits_ehi(own: Trained, beam: int) -> float:
    """Mean share of the documents that a query visits."""
    return float(own.lists.count(own.leaves(beam))[0].mean() / len(own.documents))


def ivf(own: Trained) -> Any:
    """Inverted lists of faiss, those of spherical k-means, as many as there are leaves."""
    centroid_LM = spherical_kmeans(own.documents, own.router.n_leaves, SEED)
    library: Any = faiss  # its type hints lack arguments
    quantizer = library.IndexFlatIP(centroid_LM.shape[1])
    quantizer.add(centroid_LM)
    index = library.IndexIVFFlat(quantizer, *centroid_LM.T.shape, faiss.METRIC_INNER_PRODUCT)
    index.referenced_objects = [quantizer]  # faiss keeps no reference
    index.is_trained = True
    index.add(own.documents)
    return index


def visits_ivf(index: Any, query_QM: Floats, beam: int) -> float:
    """Mean share of the documents that a query visits."""
    sizes = np.array([index.invlists.list_size(number) for number in range(index.nlist)])
    return float(sizes[index.quantizer.search(query_QM, beam)[1]].sum(axis=1).mean() / index.ntotal)


def probing(index: Any, query_QM: Floats, beam: int) -> tuple[Search, float]:
    """A search of some lists, and the share that a query visits."""
    library: Any = faiss  # its type hints lack arguments
    parameters = library.SearchParametersIVF(nprobe=beam)

    def search(query_QM: Floats) -> tuple[Floats, Ints]:
        found: tuple[Floats, Ints] = index.search(query_QM, DEPTH, params=parameters)
        return found

    return search, visits_ivf(index, query_QM, beam)


def scanning(own: Trained, index: Any) -> Callable[[int, Floats], tuple[Floats, Ints]]:
    """A search of the same lists by the product's scan: what differs from EHI is who chooses the lists."""
    list_N = index.quantizer.search(own.documents, 1)[1][:, 0]
    lists = LeafLists.build(own.documents, list_N, index.nlist)

    def search(beam: int, query_QM: Floats) -> tuple[Floats, Ints]:
        return lists.scan(query_QM, index.quantizer.search(query_QM, beam)[1], DEPTH)

    return search


def flat(index: Any, query_QM: Floats) -> tuple[Floats, Ints]:
    """A search of everything."""
    found: tuple[Floats, Ints] = index.search(query_QM, DEPTH)
    return found


def timed(searches: Sequence[Search], query_QM: Floats) -> list[float]:
    """Median milliseconds of a query by each search."""
    single = [query_QM[query : query + 1] for query in range(min(QUERIES, len(query_QM)))]

    def alone(search: Search) -> None:
        for query_1M in single:
            search(query_1M)

    works = {str(number): partial(alone, search) for number, search in enumerate(searches)}
    return [1e3 * seconds / len(single) for seconds in medians(works, ROUNDS).values()]


def recall(bench: Bench, search: Search, query_QM: Floats) -> float:
    """R@100 of the test queries."""
    score_QK, row_QK = search(query_QM)
    ranking = whole_scan(np.where(row_QK < 0, -np.inf, score_QK), row_QK, bench.ids, 0)
    return float(bench.judge.values(ranking)[f"R@{DEPTH}"].mean())
