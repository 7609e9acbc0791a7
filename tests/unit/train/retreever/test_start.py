"""Starts of a tree's splits: directions, bases, halves of k-means."""

import numpy as np
import pytest
import torch

from rayhier.model.retreever import Splits, Trunk, deviations
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
