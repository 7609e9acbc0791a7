"""Queries whose answers are answers of no train query."""

import numpy as np

from rayhier.dataset.queries import Queries, new_answers

NONE = np.zeros((0, 0), np.float32)


def test_new_answers():
    grades = {
        "new": {"d1": 1},
        "known": {"d1": 1, "d2": 2},
        "judged, but no answer": {"d2": 0, "d3": 1},
        "without an answer": {"d2": 0},
    }
    found = new_answers(Queries(list(grades), NONE, grades), {"d2"})
    assert dict(zip(grades, found.tolist(), strict=True)) == {
        "new": True,
        "known": False,
        "judged, but no answer": True,
        "without an answer": True,
    }
