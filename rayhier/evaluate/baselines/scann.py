"""The ScaNN baseline: its partitioning tree over the trained vectors, built in one process."""

from dataclasses import replace

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.dataset.ranking import Ranking, once, whole_scan
from rayhier.evaluate.baselines.documents import BaselineDocuments

WIDTH = 1024
CELLS = 20_000_000
"""Largest number of scores, queries times results, that one call to ScaNN returns."""


class ScannTree:
    """ScaNN's partitions with ScaNN's defaults and exact scores, so that only the choice of partitions loses results.

    ScaNN does not say which partitions it searched. So all documents that ScaNN finds are fetched, and count as
    visited. Partitions may have fewer than 50 documents, so that documents stay in their nearest partition.
    """

    def __init__(self, documents: BaselineDocuments, leaves: int) -> None:
        self.result_ids, self.result_N, vector_NM = documents.result_ids, documents.result_N, documents.vector_NM
        self.count = len(vector_NM)
        self.width = min(WIDTH, self.count)
        """Number of results that a call requests. If a query gets this many results, the number is doubled."""
        # ScaNN is an optional package. The plan refuses specs that need ScaNN if it is not installed.
        from scann.scann_ops.py import scann_ops_pybind

        builder = scann_ops_pybind.builder(np.ascontiguousarray(vector_NM), self.width, "dot_product")
        tree = builder.tree(leaves, 1, min_partition_size=1)
        self.index = tree.score_brute_force().build()

    def rank(self, query_QM: Floats, beam: int, k: int) -> Ranking:
        begin = 0
        parts = []
        while begin < len(query_QM):
            end = begin + max(1, CELLS // self.width)
            part = self._some(query_QM[begin:end], beam, k)
            if part[2].max() == self.width < self.count:
                self.width = min(2 * self.width, self.count)  # partitions may hold more documents: search again
                continue
            parts.append(part)
            begin = end
        score_QK, row_QK, visited_Q = (np.concatenate([part[place] for part in parts]) for place in range(3))
        return replace(whole_scan(score_QK, row_QK, self.result_ids, visited_Q), leaves_Q=np.full(len(query_QM), beam))

    def _some(self, query_QM: Floats, beam: int, k: int) -> tuple[Floats, Ints, Ints]:
        rows, scores = self.index.search_batched(query_QM, final_num_neighbors=self.width, leaves_to_search=beam)
        scored = ~np.isnan(scores)
        score_QN = np.where(scored, scores, -np.inf).astype(np.float32)
        row_QN = np.where(scored, rows.astype(np.int64), -1)
        visited_Q = scored.sum(axis=1)
        if self.result_N is None:
            return score_QN[:, :k], row_QN[:, :k], visited_Q
        return *once(score_QN, row_QN, self.result_N, k), visited_Q
