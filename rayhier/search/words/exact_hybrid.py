"""Exact search by vectors and BM25, fused in memory, to choose BM25's weight and as a baseline of reports.

Shapes: Q queries, M embedding size, N documents (or passages), K results, W weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rayhier.arrays import Bools, Floats, Values
from rayhier.dataset.documents import result_numbers
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import ID, Ranking
from rayhier.search.segment.exact import best_results, exact
from rayhier.search.words.bm25 import Bm25Index
from rayhier.search.words.fusion_weight import WEIGHTS
from rayhier.search.words.hybrid import fused
from rayhier.spec.search import HybridSpec

RESULTS, DEPTH = 10, 100
"""RESULTS: number of results that choose a weight. DEPTH: number of results of vectors and of BM25 that are fused."""


@dataclass(frozen=True)
class ExactHybrid:
    words: Bm25Index
    """BM25 over all documents, in the order of `vector_NM`."""
    vector_NM: Floats
    ids: pa.Array
    results: pa.Array
    """Id of each document's result [n]. Passages of one document have the same id."""
    match_N: Bools | None = None
    """Mask [n] of the documents that are searched. None: all."""
    cosines: bool = True

    def rank(self, texts: Sequence[str], query_QM: Floats, k: int, fusion: HybridSpec) -> Ranking:
        listed = fusion.listed(k)
        dense, lexical = self._found(texts, query_QM, listed)
        return fused(dense, [lexical], k, fusion, listed, cosines=self.cosines)

    def values(self, queries: Queries, query_QM: Floats, measure: str) -> Values:
        """Compute a measure [w, q] of queries [q, m] with each of WEIGHTS."""
        judge, (dense, lexical) = Judge(queries, [measure]), self._found(queries.texts, query_QM, DEPTH)
        rankings = (
            fused(dense, [lexical], RESULTS, HybridSpec(weight=weight), DEPTH, cosines=self.cosines)
            for weight in WEIGHTS
        )
        return np.stack([judge.values(ranking)[measure] for ranking in rankings])

    def _found(self, texts: Sequence[str], query_QM: Floats, k: int) -> tuple[Ranking, Ranking]:
        ids, results, vector_NM = self.ids, self.results, self.vector_NM
        if self.match_N is not None:
            is_searched, vector_NM = pa.array(self.match_N), vector_NM[self.match_N]
            ids, results = ids.filter(is_searched), results.filter(is_searched)
        dense = exact(query_QM, vector_NM, ids, results, k)
        score_QK, row_QK = best_results(
            lambda fetch: self.words.best(texts, fetch, self.match_N),
            result_numbers(self.ids, self.results),
            self.words.count,
            k,
        )
        base_QK = np.full(row_QK.shape, -np.inf, np.float32)
        for query, row_K in enumerate(row_QK):
            base_QK[query, row_K >= 0] = self.vector_NM[row_K[row_K >= 0]] @ query_QM[query]
        nothing_Q = np.zeros(len(texts), np.int64)
        table = pa.table({ID: self.results})
        lexical = Ranking(score_QK, row_QK, table, nothing_Q, nothing_Q, nothing_Q, base_QK=base_QK)
        return replace(dense, source=dense.documents.select([ID])), lexical
