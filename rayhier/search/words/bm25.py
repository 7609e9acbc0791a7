"""BM25 of texts in memory."""

from collections.abc import Sequence

import numpy as np

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.words import postings
from rayhier.search.words.postings import PostingLists, Postings, counted
from rayhier.spec.corpus import Language


class Bm25Index:
    """Postings of texts, made in memory, which score texts by the words that they share with a query."""

    def __init__(self, texts: Sequence[str], language: Language = "english") -> None:
        self.count, self.language = len(texts), language
        table = postings(texts, np.arange(self.count), self.language)
        self._lists = PostingLists([Postings(counted(table, self.count))], [(0, self.count)], language=self.language)

    def scores(self, query: str) -> Floats:
        """Score all texts [n] for a query. A text that shares no word with the query has 0."""
        return self._lists.scores(self._lists.weighted(query))

    def best(self, queries: Sequence[str], k: int, mask_N: Bools | None = None) -> tuple[Floats, Ints]:
        """Return scores and rows [q, k] of the best texts that `mask_N` [n] marks, ties by row (missing: -inf, -1)."""
        score_QT, row_QT = self._lists.best(queries, k, mask_N)
        lacking = (0, 0), (0, max(0, min(k, self.count) - row_QT.shape[1]))
        return (
            np.pad(score_QT[:, :k], lacking, constant_values=-np.inf),
            np.pad(row_QT[:, :k], lacking, constant_values=-1),
        )
