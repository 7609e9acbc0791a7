"""Vectors and BM25 fused with many weights at once, judged for each query.

Shapes: Q queries, F documents that vectors or BM25 list for a query, K results, N documents, W weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rayhier.arrays import Floats, Ints, Values
from rayhier.dataset.queries import Queries

NDCG, RECALL = "nDCG@10", "R@100"
FIRST, DEPTH = 10, 100
"""Results that nDCG and recall count; vectors and BM25 list as many as recall counts."""


@dataclass(frozen=True)
class Listed:
    """What vectors or BM25 list for each query, in the order of the documents' ids, by which ties are broken."""

    base_QF: Floats
    """Scores by vectors; -inf where a query has fewer documents."""
    words_QF: Floats
    """BM25 divided by the query's best; 0 for a document that BM25 does not list."""
    gain_QF: Ints
    """Grades of the documents, 0 where they are not judged."""
    ideal_Q: Values
    """Discounted gain of the best ranking."""
    answers_Q: Ints

    @classmethod
    def read(cls, columns: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Make it of arrays that were kept."""
        return cls(**columns)

    def values(self, weight_Q: Values | float) -> dict[str, Values]:
        """Measure [q] the order of score by vectors + weight · BM25 / the query's best BM25, weights [q] or one."""
        added_QF = np.broadcast_to(np.asarray(weight_Q, np.float64), len(self.base_QF))[:, None] * self.words_QF
        return self._judged(self.base_QF.astype(np.float64) + added_QF)

    def bm25(self) -> dict[str, Values]:
        """Measure [q] BM25 alone."""
        return self._judged(np.where(self.words_QF > 0, self.words_QF, -np.inf))

    def _judged(self, score_QF: Values) -> dict[str, Values]:
        place_QK = np.argsort(-score_QF, axis=1, kind="stable")[:, :DEPTH]
        listed_QK = np.take_along_axis(score_QF, place_QK, axis=1) > -np.inf
        gain_QK = np.where(listed_QK, np.take_along_axis(self.gain_QF, place_QK, axis=1), 0)
        found_Q = (gain_QK > 0).sum(axis=1) / np.maximum(self.answers_Q, 1)
        return {NDCG: _discounted(gain_QK) / np.maximum(self.ideal_Q, 1e-12), RECALL: found_Q}


def _discounted(gain_QK: Ints) -> Values:
    """Compute the discounted gain [q] of the first ten results, in order, from their grades [q, k]."""
    first_QK = gain_QK[:, :FIRST]
    return np.asarray((first_QK / np.log2(np.arange(2, first_QK.shape[1] + 2))).sum(axis=1))


def listed(
    dense: tuple[Floats, Ints],
    lexical: tuple[Floats, Ints],
    document_NM: Floats,
    queries: Queries,
    place: Mapping[str, int],
    name_N: Ints,
) -> Listed:
    """List what vectors and BM25 found, scores and rows [q, k] each, with the grades of the queries' judgements.

    `document_NM` are vectors of the documents and `queries` has vectors by the same encoder. `place` is the row of each
    document by its id, `name_N` the place of each row's id in their order.
    """
    dense_QK, dense_row_QK = dense
    word_QK, word_row_QK = lexical
    row_QF = np.concatenate([dense_row_QK, word_row_QK], axis=1)
    base_QF = np.full(row_QF.shape, -np.inf, np.float32)
    base_QF[:, : dense_QK.shape[1]] = dense_QK
    for query, row_K in enumerate(word_row_QK):
        there = np.flatnonzero(row_K >= 0)
        base_QF[query, dense_QK.shape[1] + there] = document_NM[row_K[there]] @ queries.vector_QM[query]
    word_QK = np.where(word_row_QK >= 0, word_QK, 0)
    words_QF = np.concatenate(
        [np.zeros_like(dense_QK), word_QK / np.maximum(word_QK.max(axis=1), 1e-9)[:, None]], axis=1
    )
    order_QF = np.argsort(np.where(row_QF >= 0, name_N[row_QF], len(name_N)), axis=1, kind="stable")
    row_QF, base_QF, words_QF = (np.take_along_axis(of_QF, order_QF, axis=1) for of_QF in (row_QF, base_QF, words_QF))
    again = np.zeros(row_QF.shape, dtype=bool)
    again[:, 1:] = (row_QF[:, 1:] == row_QF[:, :-1]) & (row_QF[:, 1:] >= 0)
    again_X, column_X = np.nonzero(again)
    for score_QF in (base_QF, words_QF):
        score_QF[again_X, column_X - 1] = np.maximum(score_QF[again_X, column_X - 1], score_QF[again_X, column_X])
    base_QF[again | (row_QF < 0)], words_QF[again | (row_QF < 0)] = -np.inf, 0
    grades = [queries.grades[name] for name in queries.ids]
    gain_QF = np.zeros(row_QF.shape, dtype=np.int64)
    for at, grade_of in enumerate(grades):
        for name, grade in grade_of.items():
            if grade > 0 and name in place:
                gain_QF[at, (row_QF[at] == place[name]) & ~again[at]] = grade
    best = [sorted((grade for grade in grade_of.values() if grade > 0), reverse=True) for grade_of in grades]
    ideal_Q = np.array([_discounted(np.array([gains], dtype=np.int64))[0] for gains in best])
    return Listed(
        base_QF,
        words_QF.astype(np.float32),
        gain_QF,
        ideal_Q,
        np.array([len(gains) for gains in best]),
    )
