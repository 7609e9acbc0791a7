"""A router behind codes of its leaves: what it finds beside the full comparison."""

import numpy as np
import pytest
import torch

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.opened_router import SCALE
from rayhier.model.router import opened
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
    return opened(router)


@pytest.fixture(scope="module")
def router():
    return made()


@pytest.fixture(scope="module")
def queries(router):
    rng = np.random.default_rng(1)
    near = router.W[rng.integers(0, L, Q)] / SCALE + 0.08 * rng.normal(size=(Q, M))
    return Encoded((near / np.linalg.norm(near, axis=1, keepdims=True)).astype(np.float32))


def shared(leaves, others):
    return np.mean([len(np.intersect1d(*pair)) for pair in zip(leaves, others, strict=True)])


@pytest.mark.parametrize("beam", [1, 5, 20])
def test_codes_find_nearly_all_of_the_best_leaves(beam, router, queries):
    best, wanted = router.route(queries, beam)
    leaves, log_probs = CodedRouter(router).route(queries, beam)
    assert shared(leaves, best) > 0.87 * beam
    scores = np.take_along_axis(router.bend(queries.numpy) @ router.W.T + router.b, leaves, axis=1)
    assert (np.diff(scores, axis=1) < 1e-2).all(), "densest first"
    same = leaves == best
    np.testing.assert_allclose(log_probs[same], wanted[same], atol=1e-4)


def test_a_wide_beam_and_no_queries(router, queries):
    coded = CodedRouter(router)
    (leaves, log_probs), (wanted, wanted_log_probs) = coded.route(queries, L), router.route(queries, L)
    np.testing.assert_array_equal(leaves, wanted)
    np.testing.assert_allclose(log_probs, wanted_log_probs, atol=1e-4)
    assert [part.shape for part in coded.route(queries[:0], 4)] == [(0, 4), (0, 4)]


def test_fewer_leaves_in_use_than_a_beam(queries):
    router = made()
    router.b[150:] = -np.inf
    leaves = CodedRouter(router).by_codes(queries.numpy, 200)
    assert leaves.shape == (Q, 200)
    assert all(len(set(row)) == 200 and set(row[:150]) == set(range(150)) for row in leaves.tolist())
