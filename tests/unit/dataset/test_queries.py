"""Queries whose answers are answers of no train query."""

import numpy as np

from rayhier.dataset.queries import Queries, load_answers, new_answers

from ...toys import artifact, judgements

NONE = np.zeros((0, 0), np.float32)


def test_new_answers():
    grades = {"new": {"d1": 1}, "known": {"d1": 1, "d2": 2}, "no answer": {"d2": 0, "d3": 1}, "without": {"d2": 0}}
    found = new_answers(Queries(list(grades), NONE, grades), {"d2"})
    assert found.tolist() == [True, False, True, True]


def test_answers_of_a_split(tmp_path):
    splits = {"train": [("a", "d1", 1), ("a", "d2", 0), ("b", "d1", 2)], "test": [("c", "d3", 1)]}
    tables = {f"judgements/{split}.parquet": judgements(rows) for split, rows in splits.items()}
    corpus = artifact(tmp_path, "corpus", tables)
    assert load_answers(corpus, "train") == {"d1"}
    assert load_answers(corpus, "test") == {"d3"}
