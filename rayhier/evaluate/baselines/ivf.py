"""Search a k-means IVF with each document in one or two lists, which are groups of documents like leaves."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import SAMPLE_A_CLUSTER, spherical_kmeans
from rayhier.cluster.library import faiss, ivf_tools
from rayhier.cluster.neighbours import Neighbours, flat_index
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import Ranking, once, whole_scan
from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.evaluate.curve import System, beams, measure_curve, reach
from rayhier.model.placing import parts
from rayhier.model.spill import CANDIDATES, second_leaves
from rayhier.search.segment.exact import best_results
from rayhier.search.segment.scan import ListedRows, RankedRows, scan

FEWEST_LISTS = 16
TUNED_MEASURE = "R@100"
TUNED_SHARE = 0.95
DEPTH = 100
MOST_TUNED = 200_000
"""Largest number of documents that are searched to choose the number of lists."""


class KmeansIvf:
    """Lists by spherical k-means, searched as in faiss's `IndexIVFFlat`. SOAR chooses a document's second list."""

    def __init__(self, documents: BaselineDocuments, lists: int, seed: int, leaves: int = 1) -> None:
        self.result_ids, vector_NM = documents.result_ids, documents.vector_NM
        n, rows = len(vector_NM), documents.sample(SAMPLE_A_CLUSTER * lists, seed)
        centroids = spherical_kmeans(vector_NM, lists, seed, rows=rows)
        self._near, count = Neighbours(centroids), min(CANDIDATES, lists) if leaves > 1 else 1
        leaf_AN = np.empty((min(leaves, lists), n), np.int64)
        for part in parts(n):
            near_PC, vector_PM = self._near.search(vector_NM[part], count)[0], vector_NM[part].astype(np.float32)
            leaf_AN[0, part] = near_PC[:, 0]
            if len(leaf_AN) > 1:
                leaf_AN[1, part] = near_PC[np.arange(len(near_PC)), second_leaves(vector_PM, near_PC, centroids)]
        is_searched_N = np.ones(n, bool) if documents.match_N is None else documents.match_N
        entry_E = np.flatnonzero(np.tile(is_searched_N, len(leaf_AN)))
        self._document_E = (entry_E % n)[np.argsort(leaf_AN.ravel()[entry_E], kind="stable")]
        self._sizes = np.bincount(leaf_AN.ravel()[entry_E], minlength=lists)
        ends = np.cumsum(self._sizes)
        self._lists = ListedRows(
            self._sizes, lambda number: vector_NM[self._document_E[ends[number] - self._sizes[number] : ends[number]]]
        )
        result_N = np.arange(n) if documents.result_N is None else documents.result_N
        self._result_E = None if len(leaf_AN) == 1 and documents.result_N is None else result_N[self._document_E]
        pairs = np.ones(int(is_searched_N.sum()), np.int64), tuple(leaf_AN[:, is_searched_N])
        self._both = None if len(leaf_AN) == 1 else csr_array(pairs, shape=(lists, lists))
        self._seen: _Seen | None = None
        mapped = vector_NM.dtype != np.float32
        self._index: Any = None if mapped else self._faiss(vector_NM[self._document_E], centroids)

    def rank(self, query_QM: Floats, beam: int, k: int) -> Ranking:
        """Rank the best k results in `beam` lists. A next call with these queries scans only the further lists."""
        k = min(k, len(self._document_E))
        if self._seen is None or self._seen.query_QM is not query_QM or self._seen.beam > beam or self._seen.k != k:
            list_QL = self._near.search(query_QM, len(self._sizes))[0].astype(np.int32)
            self._seen = _Seen(query_QM, list_QL, k, 0, RankedRows.none(len(query_QM), k))
        seen = self._seen
        list_QB = seen.list_QL[:, :beam].astype(np.int64)

        def fetch(count: int) -> tuple[Floats, Ints]:
            return scan(self._lists, query_QM, list_QB[:, seen.beam :], count).arrays

        found = RankedRows(*best_results(fetch, self._result_E, len(self._document_E), k))
        best = RankedRows.joined([seen.best, found])
        arrays = best.first(k).arrays if self._result_E is None else once(*best.arrays, self._result_E, k)
        self._seen = replace(seen, beam=beam, best=RankedRows(*arrays))
        scanned_Q = visited_Q = self._sizes[list_QB].sum(axis=1)
        if self._both is not None:  # if both lists of a document are visited, the document counts once
            one_QB, begin_Q = np.ones(list_QB.size, np.int64), np.arange(len(list_QB) + 1) * beam
            visits = csr_array((one_QB, list_QB.ravel(), begin_Q), shape=(len(list_QB), len(self._sizes)))
            visited_Q = scanned_Q - ((visits @ self._both) * visits).sum(axis=1)
        documents = np.where(arrays[1] < 0, -1, self._document_E[arrays[1]])
        ranking = whole_scan(arrays[0], documents, self.result_ids, visited_Q)
        return replace(ranking, scanned_Q=scanned_Q, leaves_Q=np.full(len(documents), beam))

    def alone(self, query_QM: Floats, beam: int, k: int) -> None:
        """Search with faiss's IVF, only to measure the time."""
        library: Any = faiss  # faiss's type hints lack this name
        self._index.search(np.ascontiguousarray(query_QM), k, params=library.SearchParametersIVF(nprobe=beam))

    def _faiss(self, vector_EM: Floats, centroid_LM: Floats) -> Any:
        lists, m = centroid_LM.shape
        index: Any = faiss.IndexIVFFlat(flat_index(centroid_LM), m, lists, faiss.METRIC_INNER_PRODUCT)
        index.is_trained = True
        ivf_tools.add_preassigned(index, vector_EM, np.repeat(np.arange(len(self._sizes)), self._sizes))
        return index


@dataclass(frozen=True)
class _Seen:
    """State of a search: queries, all their lists [q, l] in order, and the best rows of the first `beam` lists."""

    query_QM: Floats
    list_QL: npt.NDArray[np.int32]
    k: int
    beam: int
    best: RankedRows


def tuned_lists(documents: BaselineDocuments, dev: Queries, seed: int, leaves: int = 1) -> int:
    """Choose the number of lists with the least cost to reach 95% of exact search's R@100 on dev.

    Of more than 200,000 documents, only a sample with all answers is searched. For the whole corpus, the number of
    lists is then multiplied by √(documents / sample).
    """
    every, answers = len(documents.doc_ids), {name for grades in dev.grades.values() for name in grades}
    documents = documents.some(MOST_TUNED, answers, seed)
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
    best = min(costs, key=lambda lists: costs[lists] if np.isfinite(costs[lists]) else np.inf)
    return int(best * (every / count) ** 0.5 + 0.5)


def list_choices(documents: int) -> list[int]:
    """Return the powers of two from 16 to N/8 for N documents. Without such a power, N/8 rounded down, at least 1.

    >>> list_choices(1000)
    [16, 32, 64]
    """
    choices = []
    lists = FEWEST_LISTS
    while lists <= documents / 8:
        choices.append(lists)
        lists *= 2
    return choices or [max(1, documents // 8)]
