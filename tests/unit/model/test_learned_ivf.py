"""The taught router, its loss and its groups: as k-means at the start, by hand, and back from its folder."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.opened_router import SCALE
from rayhier.model.router import opened

M, TEXTS = 16, 30


def unit(*shape, seed=0):
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


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


@pytest.mark.parametrize("count", [2, 60])
def test_every_leaf_by_hand_and_a_beam_over_all_is_every_leaf_densest_first(count):
    router, texts = taught(count), unit(TEXTS, M)
    wanted = [by_hand(router, x)[0] for x in texts]
    np.testing.assert_allclose(router.log_probs(texts), wanted, atol=1e-4)
    leaves, log_probs = opened(router).route(Encoded(texts.numpy()), router.n_leaves + 5)
    assert leaves.shape == (TEXTS, router.n_leaves)
    for x, found, log_prob in zip(texts, leaves, log_probs, strict=True):
        log_p, density = by_hand(router, x)
        np.testing.assert_allclose(log_prob, log_p[found], atol=1e-4)
        assert sorted(found.tolist()) == list(range(router.n_leaves))
        assert (np.diff(density[found]) < 1e-4).all()
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), 1, rtol=1e-5)


def test_documents_lie_nearest_after_price_and_a_dear_leaf_is_no_worse_for_queries():
    router, price, texts = taught(12), 0.4, unit(TEXTS, M)
    encoded = Encoded(texts.numpy())
    queries, near = opened(router).route(encoded, 12), texts @ router.cells.centroid_LM.T
    router.cells.price_L[5] = price
    near[:, 5] -= price
    leaves, log_probs = opened(router).place(encoded, 12)
    assert leaves.tolist() == near.argsort(dim=1, descending=True).tolist()
    wanted = (SCALE * near).log_softmax(dim=1).gather(1, torch.from_numpy(leaves))
    np.testing.assert_allclose(log_probs, wanted, atol=1e-5)
    for found, before in zip(opened(router).route(encoded, 12), queries, strict=True):
        np.testing.assert_array_equal(found, before)


def test_no_texts_and_multiply_adds():
    router = opened(taught(60))
    assert router.multiply_adds(5) == 2 * 5 * M + 60 * M
    for way in (router.route, router.place):
        assert [part.shape for part in way(Encoded(np.empty((0, M), np.float32)), 4)] == [(0, 4), (0, 4)]


@pytest.mark.parametrize(("leaves", "count"), [(400, 1), (400, 32), (60, 55)])
def test_documents_that_look_at_near_groups_alone_are_placed_as_by_all(leaves, count, monkeypatch):
    """Groups of leaves by their nearest of forty directions; where near ones have too few leaves, all are looked at."""
    router, texts, drawn = LearnedIvfRouter(M, leaves, 0, groups=40), unit(300, M, seed=4), torch.Generator()
    router.begin(unit(leaves, M, seed=1))
    router.requires_grad_(requires_grad=False)
    router.cells.group_GM.copy_(unit(40, M, seed=2))
    router.cells.group_L.copy_((router.cells.centroid_LM @ router.cells.group_GM.T).argmax(dim=1))
    router.cells.price_L.copy_(0.05 * torch.rand(leaves, generator=drawn.manual_seed(3)))
    trained, encoded = opened(router), Encoded(texts.numpy())
    found, log_probs = trained.place(encoded, count)
    monkeypatch.setattr("rayhier.model.opened_router.PROBES", 40)
    exact, exact_log_probs = trained.place(encoded, count)
    assert all(len(set(row)) == count for row in found.tolist())
    same = found[:, 0] == exact[:, 0]
    assert same.mean() > 0.95
    over = log_probs[same, 0] - exact_log_probs[same, 0]  # of a sum that lacks the groups not looked at
    assert (over > -1e-5).all()
    assert over.mean() < 0.2
    assert count < 55 or (found == exact).all()
