"""The k-means IVF baseline, with a document in one list (a group, like a leaf) or two, and the number of its lists."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import CAST_ROWS, SAMPLE_A_CLUSTER, spherical_kmeans
from rayhier.cluster.library import faiss, ivf_tools
from rayhier.cluster.neighbours import flat_index, nearest
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import Ranking, whole_scan
from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.evaluate.curve import System, beams, measure_curve, reach
from rayhier.model.spill import CANDIDATES, second_leaves
from rayhier.search.segment.exact import best_results

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
        self._near, n = flat_index(centroids), len(vector_NM)
        near_NC = nearest(vector_NM, centroids, min(CANDIDATES, lists) if leaves > 1 else 1)[0]
        leaf_AN = near_NC[None, :, 0]
        if leaves > 1 and lists > 1:
            leaf_AN = np.stack([leaf_AN[0], near_NC[np.arange(n), second_leaves(vector_NM, near_NC, centroids)]])
        self._index: Any = faiss.IndexIVFFlat(self._near, vector_NM.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
        self._index.is_trained = True
        for leaf_N in leaf_AN:
            for begin in range(0, n, CAST_ROWS):
                rows = slice(begin, begin + CAST_ROWS)
                vectors = np.ascontiguousarray(vector_NM[rows], np.float32)
                ivf_tools.add_preassigned(self._index, vectors, np.ascontiguousarray(leaf_N[rows], np.int64))
        self._result_N = documents.result_N
        if len(leaf_AN) > 1:
            self._result_N = np.tile(np.arange(n) if self._result_N is None else self._result_N, 2)
        is_searched_N = np.ones(n, bool) if documents.match_N is None else documents.match_N
        self._bits = np.packbits(np.tile(is_searched_N, len(leaf_AN)), bitorder="little")  # faiss keeps no reference
        bitmap = faiss.IDSelectorBitmap(len(self._bits), faiss.swig_ptr(self._bits))
        self._selector = None if documents.match_N is None else bitmap
        list_AN = leaf_AN[:, is_searched_N]
        self._sizes = np.bincount(list_AN.ravel(), minlength=lists)
        pairs = np.ones(list_AN.shape[1], np.int64), tuple(list_AN)
        self._both = None if len(leaf_AN) == 1 else csr_array(pairs, shape=(lists, lists))

    def rank(self, query_QM: Floats, beam: int, k: int) -> Ranking:
        rows = self._index.ntotal
        scores, rows_QK = best_results(partial(self.alone, query_QM, beam), self._result_N, rows, min(k, rows))
        list_QB: Ints = self._near.search(query_QM, beam)[1]
        scanned_Q = visited_Q = self._sizes[list_QB].sum(axis=1)
        if self._both is not None:  # a document counts once, where both of its lists are visited
            one_QB, begin_Q = np.ones(list_QB.size, np.int64), np.arange(len(list_QB) + 1) * beam
            visits = csr_array((one_QB, list_QB.ravel(), begin_Q), shape=(len(list_QB), len(self._sizes)))
            visited_Q = scanned_Q - ((visits @ self._both) * visits).sum(axis=1)
        documents = np.where(rows_QK < 0, -1, rows_QK % len(self.result_ids))
        ranking = whole_scan(scores, documents, self.result_ids, visited_Q)
        return replace(ranking, scanned_Q=scanned_Q, leaves_Q=np.full(len(documents), beam))

    def alone(self, query_QM: Floats, beam: int, k: int) -> tuple[Floats, Ints]:
        """Search as a user of faiss would: scores and rows [q, k]. -inf and -1 stand for none."""
        library: Any = faiss  # its type hints lack this name
        parameters = library.SearchParametersIVF(nprobe=beam, sel=self._selector)
        scores, rows = self._index.search(np.ascontiguousarray(query_QM, np.float32), k, params=parameters)
        return np.where(rows < 0, -np.inf, scores), rows


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
