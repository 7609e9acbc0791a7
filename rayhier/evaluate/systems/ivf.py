"""The k-means IVF baseline, with a document in one list (a group, like a leaf) or two, and the number of its lists."""

from dataclasses import replace
from functools import partial

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import SAMPLE_A_CLUSTER, nearest, quantizer, spherical_kmeans
from rayhier.dataset.documents import Copies
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import Ranking, whole_scan
from rayhier.evaluate.curve import System, beams, measure_curve, reach
from rayhier.evaluate.systems.documents import BaselineDocuments
from rayhier.model.spill import CANDIDATES, second_leaves
from rayhier.search.segment import codecs
from rayhier.search.segment.lists import FileLists, LeafLists

FEWEST_LISTS = 16
TUNED_MEASURE = "R@100"
TUNED_SHARE = 0.95
DEPTH = 100


class KmeansIvf:
    """Lists by spherical k-means; a query visits the lists with the nearest centroids: faiss's `IndexIVFFlat`.

    With two `leaves`, a document also lies in a second list, which SOAR chooses.
    """

    def __init__(self, documents: BaselineDocuments, lists: int, seed: int, leaves: int = 1) -> None:
        self.result_ids, vector_NM = documents.result_ids, documents.vector_NM
        centroids = spherical_kmeans(documents.sample(SAMPLE_A_CLUSTER * lists, seed), lists, seed)
        self._near, n = quantizer(centroids), np.arange(len(vector_NM))
        near_NC = nearest(vector_NM, centroids, min(CANDIDATES, lists) if leaves > 1 else 1)[0]
        leaf_N, match_N = near_NC[:, 0], documents.match_N
        index = codecs.fill("flat", vector_NM, leaf_N, lists)
        copies = None if documents.result_N is None else Copies(documents.result_N)
        if leaves > 1 and lists > 1:
            second_N = near_NC[n, second_leaves(vector_NM, near_NC, centroids)]
            lower_N1 = np.concatenate([np.full(len(n), -1), leaf_N])[:, None]
            copies = Copies(np.tile(n if documents.result_N is None else documents.result_N, 2), lower_N1)
            codecs.add(index, vector_NM, second_N)
            leaf_N = np.concatenate([leaf_N, second_N])
            match_N = None if match_N is None else np.tile(match_N, 2)
        sizes = np.bincount(leaf_N, minlength=lists)
        self._lists = LeafLists([FileLists(index, np.arange(lists), sizes, copies, leaf_N)])
        if match_N is not None:
            self._lists = self._lists.where(match_N)

    def rank(self, query_QM: Floats, beam: int, k: int) -> Ranking:
        list_QB: Ints = self._near.search(query_QM, beam)[1]
        scores, rows = self._lists.scan(query_QM, list_QB, k)
        visited_Q, scanned_Q = self._lists.count(list_QB)
        documents = np.where(rows < 0, -1, rows % len(self.result_ids))
        ranking = whole_scan(scores, documents, self.result_ids, visited_Q)
        return replace(ranking, scanned_Q=scanned_Q, leaves_Q=np.full(len(rows), beam))

    alone = rank


def tuned_lists(documents: BaselineDocuments, dev: Queries, seed: int, leaves: int = 1) -> int:
    """Choose the number of lists with which 95% of exact search's R@100 on dev costs least."""
    judge, (count, searched) = Judge(dev, [TUNED_MEASURE]), documents.counts()
    target = TUNED_SHARE * judge.mean(documents.exact(dev.vector_QM, DEPTH))[TUNED_MEASURE]
    costs = {}
    for lists in list_choices(count):
        ivf = KmeansIvf(documents, lists, seed, leaves)
        system = System(
            "ivf",
            searched,
            beams(lists),
            partial(ivf.rank, dev.vector_QM, k=DEPTH),
            lambda _: float(lists),  # noqa: B023  the curve is measured below
        )
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
