"""The taught router: as k-means at the start, by hand where it is a tree, and back from its folder."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import SCALE, LearnedIvfRouter
from rayhier.model.router import load_router, place_all, route_all, save_router

M, TEXTS = 16, 30
SHAPES = pytest.mark.parametrize(("branching", "height"), [(2, 1), (12, 1), (60, 1), (4, 2), (3, 3), (2, 5)])


def unit(*shape, seed=0):
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


@pytest.fixture
def texts():
    return unit(TEXTS, M)


def begun(branching, height, rank=5):
    torch.manual_seed(0)
    router = LearnedIvfRouter(M, branching, height, rank)
    router.begin(unit(router.n_leaves, M, seed=1))
    return router.requires_grad_(requires_grad=False)


def taught(branching, height, rank=5):
    """Weights, biases and sizes as teaching and placing may leave them."""
    router = begun(branching, height, rank)
    for parameter in router.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    router.log_size_L.copy_(torch.rand(router.n_leaves) * 3)
    return router


def by_hand(router, x):
    """Log-probability and log-density [L] of every leaf for one query in float64, and the score of every node."""
    x = x.double().numpy()
    V, U = (matrix.double().numpy() for matrix in (router.V, router.U))
    y = x + U @ np.maximum(V @ x, 0)
    scores = [W.double().numpy() @ y + b.double().numpy() for W, b in zip(router.W, router.b, strict=True)]
    logits = scores[-1] + router.log_size_L.double().numpy()
    log_p = logits - np.log(np.exp(logits).sum())
    return log_p, log_p - router.log_size_L.double().numpy(), scores


@SHAPES
def test_every_leaf_by_hand(branching, height, texts):
    router = taught(branching, height)
    wanted = [by_hand(router, x)[0] for x in texts]
    levels = router.log_probs(texts)
    np.testing.assert_allclose(levels[-1], wanted, atol=1e-4)
    assert [found.shape[1] for found in levels] == [branching**level for level in range(1, height + 1)]
    for found in levels:
        torch.testing.assert_close(found.exp().sum(dim=1), torch.ones(TEXTS))


@SHAPES
def test_a_beam_over_all_leaves_is_every_leaf_densest_first(branching, height, texts):
    router = taught(branching, height)
    leaves, log_probs = router.route(Encoded(texts), router.n_leaves + 5)
    assert leaves.shape == (TEXTS, router.n_leaves)
    for x, found, log_prob in zip(texts, leaves, log_probs, strict=True):
        log_p, density, _ = by_hand(router, x)
        np.testing.assert_allclose(log_prob, log_p[found], atol=1e-4)
        assert sorted(found.tolist()) == list(range(router.n_leaves))
        assert (np.diff(density[found]) < 1e-4).all()
    torch.testing.assert_close(log_probs.exp().sum(dim=1), torch.ones(TEXTS))


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_a_tree_leaves_out_what_its_nodes_say_and_scores_the_rest_as_a_flat_router(beam, texts):
    router = taught(3, 3)
    found, log_probs = router.route(Encoded(texts), beam)
    for x, leaves, log_prob in zip(texts, found, log_probs, strict=True):
        log_p, density, scores = by_hand(router, x)
        kept = [0]
        for level in (1, 2, 3):
            children = [3 * node + child for node in kept for child in range(3)]
            best = density if level == 3 else scores[level - 1]
            kept = sorted(children, key=lambda c, best=best: -best[c])[: beam if level == 3 else 2 * beam]
        assert leaves.tolist() == kept
        np.testing.assert_allclose(log_prob, log_p[kept] - np.log(np.exp(log_p[children]).sum()), atol=1e-4)


def test_a_trees_inner_nodes_begin_as_means_of_their_children(texts):
    router, centroids = begun(4, 2), unit(16, M, seed=1)
    assert torch.equal(router.W[1], SCALE * centroids)
    means = F.normalize(centroids.view(4, 4, M).mean(dim=1), dim=1)
    torch.testing.assert_close(router.W[0], SCALE * means)
    two_nearest = (texts @ means.T).topk(2, dim=1).indices
    taken = router.route(Encoded(texts), 1)[0] // 4
    assert (taken == two_nearest).any(dim=1).all()


@pytest.mark.parametrize("height", [1, 2])
def test_place_is_nearest_centroid_whatever_was_taught(height, texts):
    router, centroids = taught(9, 1) if height == 1 else taught(3, 2), unit(9, M, seed=1)
    products = texts @ centroids.T
    longer = 4.0 * texts
    for vectors in (texts, longer):
        leaves, log_probs = place_all(router, Encoded(vectors), 4)
        assert leaves.tolist() == products.topk(4, dim=1).indices.tolist()
        torch.testing.assert_close(log_probs, (SCALE * products).log_softmax(dim=1).gather(1, leaves))
    assert place_all(router, Encoded(texts), 100)[0].shape == (TEXTS, 9)
    assert torch.equal(router.cells.centroid_LM, centroids)


def test_a_dear_leaf_is_farther_for_documents_and_no_worse_for_queries(texts):
    router, price = begun(12, 1), 0.4
    queries, near = route_all(router, Encoded(texts), 12), texts @ router.cells.centroid_LM.T
    router.cells.price_L[5] = price
    near[:, 5] -= price
    leaves, log_probs = place_all(router, Encoded(texts), 12)
    assert leaves.tolist() == near.argsort(dim=1, descending=True).tolist()
    torch.testing.assert_close(log_probs, (SCALE * near).log_softmax(dim=1).gather(1, leaves))
    for found, wanted in zip(route_all(router, Encoded(texts), 12), queries, strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize(
    ("branching", "height", "beam", "wanted"),
    [
        (60, 1, 5, 2 * 5 * M + 60 * M),  # bend, every leaf
        (600, 1, 600, 2 * 5 * M + 600 * M),
        (4, 3, 1, 2 * 5 * M + (1 + 2 + 2) * 4 * M),  # the root, then two nodes a level
        (4, 3, 6, 2 * 5 * M + (1 + 4 + 12) * 4 * M),  # the root, all of its children, twelve below them
    ],
)
def test_multiply_adds(branching, height, beam, wanted):
    assert begun(branching, height).multiply_adds(beam) == wanted


@pytest.mark.parametrize("shape", [(60, 1), (3, 3)])
def test_one_query_is_as_in_a_batch(shape, texts):
    router = taught(*shape)
    leaves, log_probs = router.route(Encoded(texts), 4)
    for n in range(TEXTS):
        found, log_prob = router.route(Encoded(texts[n : n + 1]), 4)
        assert found[0].tolist() == leaves[n].tolist()
        torch.testing.assert_close(log_prob[0], log_probs[n], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(60, 1), (3, 3)])
def test_no_texts(shape):
    router = taught(*shape)
    for way in (route_all, place_all):
        assert [part.shape for part in way(router, Encoded(torch.empty(0, M)), 4)] == [(0, 4), (0, 4)]


@pytest.mark.parametrize("shape", [(600, 1, 5), (60, 1, 0), (3, 3, 2)])
def test_round_trip(shape, tmp_path, texts):
    router = taught(*shape)
    save_router(router, tmp_path)
    loaded = load_router(tmp_path)
    for way in (route_all, place_all):
        for found, wanted in zip(way(loaded, Encoded(texts), 4), way(router, Encoded(texts), 4), strict=True):
            assert torch.equal(found, wanted)
    branching, height, rank = shape
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "type": "learned_ivf",
        "dimension": M,
        "branching": branching,
        "height": height,
        "rank": rank,
        "groups": 0,
    }
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    assert (loaded.n_leaves, loaded.levels, loaded.reader) == (branching**height, height, None)
