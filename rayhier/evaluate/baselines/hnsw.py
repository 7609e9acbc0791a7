"""The graph baseline: faiss's HNSW over the trained vectors, built in one process."""

from dataclasses import replace
from typing import Any

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.dataset.ranking import Ranking, whole_scan
from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.search.segment.exact import best_results

LINKS = 32
"""Number of neighbours of a node in the graph, faiss's default."""
LEAST_EFFORT, MOST_EFFORT = 16, 4096


class Hnsw:
    """faiss's `IndexHNSWFlat` by inner product, with faiss's default efConstruction."""

    def __init__(self, documents: BaselineDocuments) -> None:
        self.result_ids, self.result_N, vector_NM = documents.result_ids, documents.result_N, documents.vector_NM
        self.index = faiss.IndexHNSWFlat(vector_NM.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
        self.index.add(np.ascontiguousarray(vector_NM))

    def rank(self, query_QM: Floats, effort: int, k: int) -> Ranking:
        """Rank with efSearch `effort`. Distances that faiss computes count as visited documents."""
        searches = [self._one(query_M[None], effort, k) for query_M in np.ascontiguousarray(query_QM)]
        score_QK, row_QK = (np.concatenate([search[place] for search in searches]) for place in (0, 1))
        distances_Q = np.array([search[2] for search in searches])
        # faiss computes the distances of some documents several times, on several levels of the graph.
        visited_Q = np.minimum(distances_Q, self.index.ntotal)
        return replace(whole_scan(score_QK, row_QK, self.result_ids, visited_Q), scanned_Q=distances_Q)

    def alone(self, query_1M: Floats, effort: int, k: int) -> None:
        """Search one query as a user of faiss would, to measure the time."""
        library: Any = faiss
        self.index.search(query_1M, min(k, self.index.ntotal), params=library.SearchParametersHNSW(efSearch=effort))

    def _one(self, query_1M: Floats, effort: int, k: int) -> tuple[Floats, Ints, int]:
        """Search one query, because faiss counts distances over all queries of a call together."""
        library: Any = faiss  # faiss's type hints lack these names
        stats, parameters = library.cvar.hnsw_stats, library.SearchParametersHNSW(efSearch=effort)

        def fetch_rows(fetch: int) -> tuple[Floats, Ints]:
            stats.reset()
            scores, rows = self.index.search(query_1M, fetch, params=parameters)
            scores[rows < 0] = -np.inf
            return scores, rows

        width = min(k, self.index.ntotal)
        scores, rows = best_results(fetch_rows, self.result_N, self.index.ntotal, width)
        return scores[:, :width], rows[:, :width], int(stats.ndis)


def efforts(documents: int) -> list[int]:
    """Return the values of efSearch to measure, from 16 to all documents or 4,096. Each is √2 times the previous value.

    >>> efforts(50)
    [16, 23, 32, 45, 50]
    """
    most = min(MOST_EFFORT, max(documents, LEAST_EFFORT))
    efforts, size = [], float(LEAST_EFFORT)
    while size < most:
        efforts.append(round(size))
        size *= 2**0.5
    return [*efforts, most]
