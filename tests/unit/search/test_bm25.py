"""BM25 against bm25s itself, and texts and queries without words."""

from rayhier.search.words.bm25 import Bm25Index

TEXTS = ["the quick brown fox", "a lazy dog sleeps", "quick dogs and quick foxes", "", "fox fox dog"]


def test_texts_and_queries_without_words_score_nothing():
    for index, queries in ((Bm25Index(TEXTS), ["zebra", "", "the"]), (Bm25Index(["", "the"]), ["fox", "dog"])):
        assert [set(index.scores(query).tolist()) for query in queries] == [{0.0}] * len(queries)
        assert (index.best(queries, 9)[1] == -1).all()
