"""A router behind codes of its leaves: what it finds beside the full comparison."""

import numpy as np
import pytest
import torch

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import SCALE, LearnedIvfRouter
from rayhier.model.router import route_all
from rayhier.search.routing.coded_router import CodedRouter

M, L, Q = 96, 2_000, 50


def made(seed=0):
    """A flat router whose leaves lie around sixty directions, with a bend, biases and sizes."""
    rng = np.random.default_rng(seed)
    centroid_LM = rng.normal(size=(60, M))[rng.integers(0, 60, L)] + 0.7 * rng.normal(size=(L, M))
    centroid_LM /= np.linalg.norm(centroid_LM, axis=1, keepdims=True)
    router = LearnedIvfRouter(M, L, 3).eval().requires_grad_(requires_grad=False)
    router.begin(torch.tensor(centroid_LM, dtype=torch.float32))
    router.b.copy_(torch.tensor(rng.normal(size=L) * 0.3))
    router.U.copy_(torch.tensor(rng.normal(size=(M, 3)) * 0.02))
    router.log_size_L.copy_(torch.tensor(rng.uniform(1, 3, L)))
    return router


@pytest.fixture(scope="module")
def router():
    return made()


@pytest.fixture(scope="module")
def queries(router):
    rng = np.random.default_rng(1)
    near = router.W.numpy()[rng.integers(0, L, Q)] / SCALE + 0.08 * rng.normal(size=(Q, M))
    return Encoded(torch.tensor(near / np.linalg.norm(near, axis=1, keepdims=True), dtype=torch.float32))


def shared(leaves, others):
    return np.mean([len(np.intersect1d(*pair)) for pair in zip(leaves.numpy(), others.numpy(), strict=True)])


@pytest.mark.parametrize("beam", [1, 5, 20])
def test_codes_find_nearly_all_of_the_best_leaves(beam, router, queries):
    best, wanted = route_all(router, queries, beam)
    leaves, log_probs = CodedRouter(router).route(queries, beam)
    assert shared(leaves, best) > 0.87 * beam
    scores = (router.bend(queries.vectors) @ router.W.T + router.b).gather(1, leaves)
    assert (scores.diff(dim=1) < 1e-2).all(), "densest first"
    same = leaves == best
    torch.testing.assert_close(log_probs[same], wanted[same], atol=1e-4, rtol=0)


def test_a_wide_beam_and_no_queries(router, queries):
    coded = CodedRouter(router)
    (leaves, log_probs), (wanted, wanted_log_probs) = coded.route(queries, L), route_all(router, queries, L)
    assert torch.equal(leaves, wanted)
    torch.testing.assert_close(log_probs, wanted_log_probs, atol=1e-4, rtol=0)
    assert [part.shape for part in coded.route(queries[:0], 4)] == [(0, 4), (0, 4)]


def test_fewer_leaves_in_use_than_a_beam(queries):
    router = made()
    router.b[150:] = -torch.inf
    leaves = CodedRouter(router).by_codes(queries.numpy, 200)
    assert leaves.shape == (Q, 200)
    assert all(len(set(row)) == 200 and set(row[:150]) == set(range(150)) for row in leaves.tolist())
