"""Codes of a router's leaves: the leaves that they find beside those of the full comparison."""

import numpy as np
import pytest
import torch

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import SCALE, SHORTLIST, LearnedIvfRouter
from rayhier.model.router import route_all
from rayhier.search.leaf_codes import LeafCodes

M, L, Q = 96, 2_000, 50


@pytest.fixture(scope="module")
def router():
    """A flat router whose leaves lie around sixty directions, with biases."""
    rng = np.random.default_rng(0)
    centroid_LM = rng.normal(size=(60, M))[rng.integers(0, 60, L)] + 0.7 * rng.normal(size=(L, M))
    centroid_LM /= np.linalg.norm(centroid_LM, axis=1, keepdims=True)
    made = LearnedIvfRouter(M, L, 1, 0, 12).eval().requires_grad_(requires_grad=False)
    made.begin(torch.tensor(centroid_LM, dtype=torch.float32))
    with torch.no_grad():
        made.b[0].copy_(torch.tensor(rng.normal(size=L) * 0.3))
    return made


@pytest.fixture(scope="module")
def queries(router):
    rng = np.random.default_rng(1)
    near = router.W[0].detach().numpy()[rng.integers(0, L, Q)] / SCALE + 0.08 * rng.normal(size=(Q, M))
    return Encoded(torch.tensor(near / np.linalg.norm(near, axis=1, keepdims=True), dtype=torch.float32))


def routed(router, queries, beam, first_pass=None):
    router.first_pass = first_pass
    try:
        return route_all(router, queries, beam)
    finally:
        router.first_pass = None


@pytest.fixture
def full(router, queries, monkeypatch):
    """`full(beam)`: leaves and log-probabilities where all leaves are scored in full."""
    monkeypatch.setattr(LearnedIvfRouter, "_screens", lambda *_: False)
    return lambda beam: routed(router, queries, beam)


def shared(leaves, others):
    return np.mean([len(np.intersect1d(*pair)) for pair in zip(leaves.numpy(), others.numpy(), strict=True)])


def test_where_all_leaves_are_kept_the_full_comparison_is_the_same(router, queries, full):
    codes = LeafCodes.of(router)
    y_QM = router.bend(queries.vectors)
    kept = codes(y_QM, L)
    assert all(len(set(row.tolist()) - {-1}) > 0.9 * L for row in kept)
    leaves, log_probs = router._behind(lambda *_: torch.arange(L).expand(Q, -1), y_QM, 20)
    wanted, wanted_log_probs = full(20)
    assert torch.equal(leaves, wanted)
    torch.testing.assert_close(log_probs, wanted_log_probs)


@pytest.mark.parametrize("beam", [1, 5, 20])
def test_codes_find_nearly_all_of_the_best_leaves_and_more_than_a_projection(beam, router, queries, full):
    best, _ = full(beam)
    leaves, log_probs = routed(router, queries, beam, LeafCodes.of(router))
    assert shared(leaves, best) > 0.93 * beam
    assert (log_probs <= 0).all()
    y_QM, W = router.bend(queries.vectors), router.W[0]
    projected = (y_QM @ router.screen_PM.T) @ router.screened_LP.T + router.b[0]
    assert shared(leaves, best) > shared(projected.topk(SHORTLIST * beam, dim=1).indices, best)
    for row, scores in zip(leaves, y_QM @ W.T + router.b[0], strict=True):
        assert torch.equal(scores[row].sort(descending=True).values, scores[row]), "densest first"


def test_a_bias_counts(router, queries):
    W, b = router.W[0].detach().numpy(), router.b[0].detach().numpy().copy()
    b[7] += 40
    found = LeafCodes(W, b)(router.bend(queries.vectors), 5)
    assert (found == 7).any(dim=1).all()
    assert not (LeafCodes.of(router)(router.bend(queries.vectors), 5) == 7).any(dim=1).all()


def test_where_codes_find_too_few_leaves_all_are_scored(router, queries, full):
    lost = torch.full((Q, 40), -1)
    lost[:, :9] = torch.arange(9)
    leaves, log_probs = router._behind(lambda *_: lost, router.bend(queries.vectors), 10)
    wanted = full(10)
    assert torch.equal(leaves, wanted[0])
    torch.testing.assert_close(log_probs, wanted[1])
    nine = router._behind(lambda *_: lost, router.bend(queries.vectors), 9)
    assert all(set(row.tolist()) == set(range(9)) for row in nine[0])


def test_equal_weights_give_equal_codes(router, queries):
    y_QM = router.bend(queries.vectors)
    assert torch.equal(LeafCodes.of(router)(y_QM, 30), LeafCodes.of(router)(y_QM, 30))


def test_cost(router):
    codes = LeafCodes.of(router)
    assert codes.multiply_adds() == 16 * 100 + 2_000 * 100 // 128, "97 numbers are 25 pieces of four"
    router.first_pass = codes
    assert router.multiply_adds(10) == codes.multiply_adds() + 4 * 10 * M
    assert router.multiply_adds(L) != codes.multiply_adds() + 4 * L * M, "all leaves cost less in full"
    router.first_pass = None
