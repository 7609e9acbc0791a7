"""BM25 against bm25s itself, and texts and queries without words."""

import bm25s
import numpy as np

from rayhier.search.words.bm25 import Bm25Index

TEXTS = ["the quick brown fox", "a lazy dog sleeps", "quick dogs and quick foxes", "", "fox fox dog"]


def test_scores_are_bm25s_own():
    theirs = bm25s.BM25()
    theirs.index(bm25s.tokenize(TEXTS, return_ids=False, show_progress=False), show_progress=False)
    index = Bm25Index(TEXTS)
    for query in ("quick fox", "dog", "fox fox"):
        tokens = bm25s.tokenize([query], return_ids=False, show_progress=False)[0]
        wanted = index.scores(query)
        np.testing.assert_allclose(wanted, theirs.get_scores(tokens))
        scores, rows = index.best([query], 5)
        found = rows[0][rows[0] >= 0]
        assert set(found) == set(np.flatnonzero(wanted))
        np.testing.assert_allclose(scores[0][: len(found)], np.sort(wanted)[::-1][: len(found)], rtol=1e-6)


def test_texts_and_queries_without_words_score_nothing():
    for index, queries in ((Bm25Index(TEXTS), ["zebra", "", "the"]), (Bm25Index(["", "the"]), ["fox", "dog"])):
        assert [set(index.scores(query).tolist()) for query in queries] == [{0.0}] * len(queries)
        assert (index.best(queries, 9)[1] == -1).all()
