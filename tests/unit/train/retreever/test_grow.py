"""A tree's training as it begins: what follows from the seed, what dev searches, and the factor of similarities."""

import numpy as np
import pytest

from rayhier.dataset.queries import Queries
from rayhier.train.retreever.dev import searched

RESULTS = [f"d{n}" for n in range(20)]
QUERIES = Queries(["a", "b"], np.zeros((2, 4), np.float32), {"a": {"d3": 1, "d17": 1}, "b": {"d3": 1, "d8": 2}})
ANSWERS = {3, 8, 17}


@pytest.mark.parametrize("most", [4, 10, 19])
def test_a_sample_has_exactly_so_many_rows_and_all_answers(most):
    rows = searched(QUERIES, RESULTS, most).tolist()
    assert len(rows) == most
    assert rows == sorted(set(rows))
    assert set(rows) >= ANSWERS
    assert searched(QUERIES, RESULTS, 2).tolist() == sorted(ANSWERS), "all answers, though they are more"
    assert searched(QUERIES, RESULTS, 20).tolist() == list(range(20))
