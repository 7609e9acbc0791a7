"""The taught router: as k-means at the start, by hand, and back from its folder."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import SCALE, LearnedIvfRouter
from rayhier.model.router import load_router, place_all, route_all, save_router

M, TEXTS = 16, 30
LEAVES = pytest.mark.parametrize("count", [2, 12, 60])


def unit(*shape, seed=0):
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


@pytest.fixture
def texts():
    return unit(TEXTS, M)


def begun(count, rank=5):
    torch.manual_seed(0)
    router = LearnedIvfRouter(M, count, rank)
    router.begin(unit(router.n_leaves, M, seed=1))
    return router.requires_grad_(requires_grad=False)


def taught(count, rank=5):
    """Weights, biases and sizes as teaching and placing may leave them."""
    router = begun(count, rank)
    for parameter in router.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    router.log_size_L.copy_(torch.rand(router.n_leaves) * 3)
    return router


def by_hand(router, x):
    """Log-probability and log-density [L] of every leaf for one query in float64."""
    x = x.double().numpy()
    V, U = (matrix.double().numpy() for matrix in (router.V, router.U))
    y = x + U @ np.maximum(V @ x, 0)
    logits = router.W.double().numpy() @ y + router.b.double().numpy() + router.log_size_L.double().numpy()
    log_p = logits - np.log(np.exp(logits).sum())
    return log_p, log_p - router.log_size_L.double().numpy()


@LEAVES
def test_every_leaf_by_hand(count, texts):
    router = taught(count)
    wanted = [by_hand(router, x)[0] for x in texts]
    np.testing.assert_allclose(router.log_probs(texts), wanted, atol=1e-4)


@LEAVES
def test_a_beam_over_all_leaves_is_every_leaf_densest_first(count, texts):
    router = taught(count)
    leaves, log_probs = router.route(Encoded(texts), router.n_leaves + 5)
    assert leaves.shape == (TEXTS, router.n_leaves)
    for x, found, log_prob in zip(texts, leaves, log_probs, strict=True):
        log_p, density = by_hand(router, x)
        np.testing.assert_allclose(log_prob, log_p[found], atol=1e-4)
        assert sorted(found.tolist()) == list(range(router.n_leaves))
        assert (np.diff(density[found]) < 1e-4).all()
    torch.testing.assert_close(log_probs.exp().sum(dim=1), torch.ones(TEXTS))


def test_place_is_nearest_centroid_whatever_was_taught(texts):
    router, centroids = taught(9), unit(9, M, seed=1)
    products = texts @ centroids.T
    longer = 4.0 * texts
    for vectors in (texts, longer):
        leaves, log_probs = place_all(router, Encoded(vectors), 4)
        assert leaves.tolist() == products.topk(4, dim=1).indices.tolist()
        torch.testing.assert_close(log_probs, (SCALE * products).log_softmax(dim=1).gather(1, leaves))
    assert place_all(router, Encoded(texts), 100)[0].shape == (TEXTS, 9)
    assert torch.equal(router.cells.centroid_LM, centroids)


def test_a_dear_leaf_is_farther_for_documents_and_no_worse_for_queries(texts):
    router, price = begun(12), 0.4
    queries, near = route_all(router, Encoded(texts), 12), texts @ router.cells.centroid_LM.T
    router.cells.price_L[5] = price
    near[:, 5] -= price
    leaves, log_probs = place_all(router, Encoded(texts), 12)
    assert leaves.tolist() == near.argsort(dim=1, descending=True).tolist()
    torch.testing.assert_close(log_probs, (SCALE * near).log_softmax(dim=1).gather(1, leaves))
    for found, wanted in zip(route_all(router, Encoded(texts), 12), queries, strict=True):
        assert torch.equal(found, wanted)


def test_multiply_adds():
    assert begun(60).multiply_adds(5) == 2 * 5 * M + 60 * M


def test_no_texts():
    router = taught(60)
    for way in (route_all, place_all):
        assert [part.shape for part in way(router, Encoded(torch.empty(0, M)), 4)] == [(0, 4), (0, 4)]


@pytest.mark.parametrize("shape", [(600, 5), (60, 0)])
def test_round_trip(shape, tmp_path, texts):
    router = taught(*shape)
    save_router(router, tmp_path)
    loaded = load_router(tmp_path)
    for way in (route_all, place_all):
        for found, wanted in zip(way(loaded, Encoded(texts), 4), way(router, Encoded(texts), 4), strict=True):
            assert torch.equal(found, wanted)
    leaves, rank = shape
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "type": "learned_ivf",
        "dimension": M,
        "leaves": leaves,
        "rank": rank,
        "groups": 0,
    }
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    assert (loaded.n_leaves, loaded.levels, loaded.reader) == (leaves, 1, None)
