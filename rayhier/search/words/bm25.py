"""BM25, by bm25s: scores texts by the words that they share with a query."""

from collections.abc import Sequence

import bm25s
import numpy as np

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.words import language_of, words
from rayhier.storage.schemas import Language


class Bm25Index:
    """BM25 over texts, by bm25s with its defaults: Lucene's formula, k1 1.5, b 0.75."""

    def __init__(self, texts: Sequence[str], language: Language | None = "english") -> None:
        """Count the words of texts. If the language is None, it is detected from the texts."""
        self.count, self.language = len(texts), language or language_of(texts)
        self._index = bm25s.BM25()
        tokens = [words(text, self.language) for text in texts]
        self._any = any(tokens)
        if self._any:
            self._index.index(tokens, show_progress=False)

    def scores(self, query: str) -> Floats:
        """Score all texts for a query: [n], 0 where a text shares no word with it."""
        tokens = words(query, self.language)
        if not self._any or not tokens:
            return np.zeros(self.count, np.float32)
        return np.asarray(self._index.get_scores(tokens), dtype=np.float32)

    def best(self, queries: Sequence[str], k: int, mask_N: Bools | None = None) -> tuple[Floats, Ints]:
        """Return scores and rows [q, k] of the best texts that share a word with each query.

        Scores are -inf and rows -1 where there are fewer. With a mask [n], only texts where it is True are results;
        words are counted over all texts either way.
        """
        k = min(k, self.count)
        if not self._any:
            return np.full((len(queries), k), -np.inf, np.float32), np.full((len(queries), k), -1)
        weight_N = None if mask_N is None else mask_N.astype(np.float32)
        rows, scores = self._index.retrieve(
            [words(query, self.language) for query in queries], k=k, show_progress=False, weight_mask=weight_N
        )
        none = scores <= 0
        return np.where(none, -np.inf, scores).astype(np.float32), np.where(none, -1, rows.astype(np.int64))
