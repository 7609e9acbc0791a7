"""BM25 against bm25s itself, and where there are no words."""

import bm25s
import numpy as np

from rayhier.search.words.bm25 import Bm25Index

TEXTS = ["the quick brown fox", "a lazy dog sleeps", "quick dogs and quick foxes", "", "fox fox dog"]


def test_scores_are_bm25s_own():
    theirs = bm25s.BM25()
    theirs.index(bm25s.tokenize(TEXTS, return_ids=False, show_progress=False), show_progress=False)
    words = Bm25Index(TEXTS)
    for query in ("quick fox", "dog", "fox fox"):
        tokens = bm25s.tokenize([query], return_ids=False, show_progress=False)[0]
        np.testing.assert_allclose(words.scores(query), theirs.get_scores(tokens))
        scores, rows = words.best([query], 5)
        order = np.argsort(-words.scores(query), kind="stable")
        found = rows[0][rows[0] >= 0]
        assert set(found) == {row for row in order if words.scores(query)[row] > 0}
        np.testing.assert_allclose(words.scores(query)[found], words.scores(query)[order[: len(found)]])
        np.testing.assert_allclose(scores[0][: len(found)], words.scores(query)[found], rtol=1e-6)


def test_words_that_no_text_has_score_nothing():
    words = Bm25Index(TEXTS)
    assert words.scores("zebra").tolist() == words.scores("").tolist() == words.scores("the").tolist() == [0.0] * 5
    assert (words.best(["zebra"], 3)[1] == -1).all()


def test_texts_without_words():
    words = Bm25Index(["", "the"])
    assert words.scores("fox").tolist() == [0.0, 0.0]
    assert (words.best(["fox", "dog"], 9)[1] == -1).all()
