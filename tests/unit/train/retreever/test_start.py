"""A tree's training as it begins: directions, bases or halves of k-means, and what dev searches."""

import numpy as np
import pytest
import torch

from rayhier.dataset.queries import Queries
from rayhier.model.retreever import Splits, Trunk, deviations
from rayhier.train.retreever.dev import searched
from rayhier.train.retreever.grow import principal, start_at_directions, start_at_random, start_between_halves

N, M, D = 400, 12, 6


@pytest.fixture(scope="module")
def vectors():
    x = np.random.default_rng(0).normal(size=(N, M)).astype(np.float32) * np.linspace(3, 0.3, M, dtype=np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


STARTS = {
    "directions": lambda splits, vectors: start_at_directions(splits, principal(vectors, 0), vectors, 0),
    "random": lambda splits, vectors: start_at_random(splits, vectors, 0),
    "halves": lambda splits, vectors: start_between_halves(splits, vectors, 0),
}


@pytest.mark.parametrize(("start", "trunk"), [*((start, None) for start in STARTS), ("directions", Trunk(M))])
def test_scores_are_centred_and_smaller_each_level_up(start, trunk, vectors):
    splits = Splits(M, D, trunk)
    STARTS[start](splits, vectors)
    found = splits.eval()(torch.from_numpy(vectors)).detach()
    torch.testing.assert_close(found.mean(dim=0), torch.zeros(2**D - 1), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.std(dim=0, correction=0), deviations(D), atol=1e-4, rtol=1e-3)


def test_a_sample_has_exactly_so_many_rows_and_all_answers():
    grades = {"a": {"d3": 1, "d17": 1}, "b": {"d3": 1, "d8": 2}}
    queries, results = Queries(["a", "b"], np.zeros((2, 4), np.float32), grades), [f"d{n}" for n in range(20)]
    for most in (4, 10, 19, 20):
        rows = searched(queries, results, most).tolist()
        assert (len(rows), rows) == (most, sorted(set(rows)))
        assert set(rows) >= {3, 8, 17}
    assert searched(queries, results, 2).tolist() == [3, 8, 17], "all answers, though they are more"
