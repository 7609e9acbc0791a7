"""Which documents dev searches look through."""

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


def test_all_answers_are_searched_even_where_they_are_more():
    assert searched(QUERIES, RESULTS, 2).tolist() == sorted(ANSWERS)


@pytest.mark.parametrize("most", [20, 21])
def test_few_documents_are_searched_whole(most):
    assert searched(QUERIES, RESULTS, most).tolist() == list(range(20))
