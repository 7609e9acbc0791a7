"""Measures a cross-encoder on dev: how well it re-ranks the base encoder's best documents."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import Ranking

MEASURE = "nDCG@10"
DEPTH, QUERIES = 50, 200
"""Number of best documents that are re-ranked for a dev query, and the most dev queries."""

Read = Callable[[Sequence[tuple[str, str]]], Floats]
"""Function that scores pairs of a query's and a document's text: [n]."""


class Rerank:
    """Dev queries with the base encoder's best documents, which a cross-encoder re-ranks."""

    def __init__(self, queries: Queries, base: Ranking, text_of: Callable[[Ints], list[str]]) -> None:
        self.judge, self.base = Judge(queries, (MEASURE,)), base
        self.asked_X, self.place_X = np.nonzero(base.row_QK >= 0)
        row_X = base.row_QK[self.asked_X, self.place_X]
        used_U, at_X = np.unique(row_X, return_inverse=True)
        texts = text_of(used_U)
        pairs = zip(self.asked_X.tolist(), at_X.tolist(), strict=True)
        self.pairs = [(queries.texts[query], texts[at]) for query, at in pairs]

    def scores(self, read: Read) -> Floats:
        """Score the base encoder's best documents for each query with `read`: [q, k], -inf where a query has fewer."""
        score_QK = np.full(self.base.score_QK.shape, -np.inf, np.float32)
        score_QK[self.asked_X, self.place_X] = read(self.pairs)
        return score_QK

    def measured(self, score_QK: Floats) -> float:
        """Compute nDCG@10 of the order by scores [q, k]."""
        order_QK = np.argsort(-score_QK, axis=1, kind="stable")
        ranked = replace(
            self.base,
            score_QK=np.take_along_axis(score_QK, order_QK, axis=1),
            row_QK=np.take_along_axis(self.base.row_QK, order_QK, axis=1),
        )
        return self.judge.mean(ranked)[MEASURE]
