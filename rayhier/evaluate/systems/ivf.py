"""The k-means IVF baseline, with a document in one list (a group, like a leaf) or two, and the number of its lists."""

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import SAMPLE_A_CLUSTER, quantizer, spherical_kmeans
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.evaluate.collection import Collection
from rayhier.evaluate.curve import System, measure_curve, reach
from rayhier.evaluate.part import Part

FEWEST_LISTS = 16
TUNED_MEASURE = "R@100"
TUNED_SHARE = 0.95
DEPTH = 100


def faiss_ivf(
    name: str, collection: Collection, query_QM: Floats, k: int, lists: int, seed: int, leaves: int = 1
) -> System:
    """Make a system of lists by spherical k-means; a query visits the lists with nearest centroids: `IndexIVFFlat`.

    Routing a query takes a dot product for each list. Where `leaves` is 2, a document also lies in a second list, which
    SOAR chooses.
    """
    centroids = spherical_kmeans(collection.sample(SAMPLE_A_CLUSTER * lists, seed), lists, seed)
    collection.parts.call(Part.partition, name, centroids, leaves)
    near = quantizer(centroids)
    order_QL: Ints = near.search(query_QM, lists)[1]

    def probe(beam: int, rows: slice) -> Ints:
        return order_QL[:, :beam] if rows == slice(None) else near.search(query_QM[rows], beam)[1]

    return collection.system(name, name, query_QM, k, probe, lambda _: float(lists))


def tuned_lists(name: str, collection: Collection, dev: Queries, seed: int, leaves: int = 1) -> int:
    """Choose the number of lists with which 95% of exact search's R@100 on dev costs least.

    It is one of `list_choices`: a power of two from 16 to N/8 for N documents.
    """
    judge = Judge(dev, [TUNED_MEASURE])
    target = TUNED_SHARE * judge.mean(collection.exact(dev.vector_QM, DEPTH))[TUNED_MEASURE]
    costs = {}
    for lists in list_choices(collection.documents):
        system = faiss_ivf(name, collection, dev.vector_QM, DEPTH, lists, seed, leaves)
        costs[lists] = reach(measure_curve(system, judge), TUNED_MEASURE, target)
    return min(costs, key=lambda lists: costs[lists] if np.isfinite(costs[lists]) else np.inf)


def list_choices(documents: int) -> list[int]:
    """Return the powers of two from 16 to N/8 for N documents; where there are none, N/8 rounded down, at least 1.

    >>> list_choices(1000)
    [16, 32, 64]
    """
    choices = []
    lists = FEWEST_LISTS
    while lists <= documents / 8:
        choices.append(lists)
        lists *= 2
    return choices or [max(1, documents // 8)]
