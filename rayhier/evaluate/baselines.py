"""The controls: exact search and k-means IVF, on the base encoder's vectors and on the trained ones."""

from collections.abc import Sequence

import numpy as np

from rayhier.cluster.kmeans import nearest, spherical_kmeans
from rayhier.cluster.library import faiss
from rayhier.evaluate.curve import System, measure_curve, reach
from rayhier.evaluate.measures import Judge, Queries, Ranking
from rayhier.search.lists import Ints, LeafLists
from rayhier.storage.columns import Floats

FEWEST_LISTS = 16
TUNED_MEASURE = "R@100"
TUNED_SHARE = 0.95
DEPTH = 100


def exact(query_QM: Floats, vectors_NM: Floats, k: int) -> Ranking:
    """Every document scored."""
    index = faiss.IndexFlatIP(vectors_NM.shape[1])
    index.add(np.ascontiguousarray(vectors_NM))
    return Ranking(*index.search(np.ascontiguousarray(query_QM), min(k, len(vectors_NM))))


def faiss_ivf(name: str, query_QM: Floats, vectors_NM: Floats, lists: int, seed: int) -> System:
    """Spherical k-means lists, probed by nearest centroid, as `IndexIVFFlat` does; routing costs its centroids."""
    centroids = spherical_kmeans(vectors_NM, lists, seed)
    own_N = nearest(vectors_NM, centroids, 1)[0][:, 0]
    order_QL: Ints = nearest(query_QM, centroids, lists)[0]
    return System(name, LeafLists(vectors_NM, own_N, lists), lambda beam: order_QL[:, :beam], lambda _: float(lists))


def tuned_lists(queries: Queries, vectors_NM: Floats, document_ids: Sequence[str], seed: int) -> int:
    """The power of two from 16 to N/8 with the least cost for 95% of exact R@100 on these (dev) queries."""
    judge = Judge(queries, document_ids, [TUNED_MEASURE])
    target = TUNED_SHARE * judge.mean(exact(queries.vector_QM, vectors_NM, DEPTH))[TUNED_MEASURE]
    costs = {}
    for lists in list_choices(len(vectors_NM)):
        system = faiss_ivf("ivf", queries.vector_QM, vectors_NM, lists, seed)
        costs[lists] = reach(measure_curve(system, queries, judge, DEPTH), TUNED_MEASURE, target)
    return min(costs, key=lambda lists: costs[lists] if np.isfinite(costs[lists]) else np.inf)


def list_choices(documents: int) -> list[int]:
    """Powers of two from 16 to N/8; where there are none, as many as N/8 allows.

    >>> list_choices(1000)
    [16, 32, 64]
    """
    choices = []
    lists = FEWEST_LISTS
    while lists <= documents / 8:
        choices.append(lists)
        lists *= 2
    return choices or [max(1, documents // 8)]
