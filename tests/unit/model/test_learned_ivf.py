"""The taught router: as k-means at the start, by hand where it is screened or a tree, and back from its folder."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import SCALE, SHORTLIST, LearnedIvfRouter
from rayhier.model.router import load_router, place_all, route_all, save_router

M, TEXTS = 16, 30
SHAPES = pytest.mark.parametrize(("branching", "height"), [(2, 1), (12, 1), (60, 1), (4, 2), (3, 3), (2, 5)])


def unit(*shape, seed=0):
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


@pytest.fixture
def texts():
    return unit(TEXTS, M)


@pytest.fixture
def always(monkeypatch):
    """The first pass is made where it does not pay, too."""
    monkeypatch.setattr(LearnedIvfRouter, "_screens", lambda router, _: router.screen > 0)


def begun(branching, height, screen=0, rank=5):
    torch.manual_seed(0)
    router = LearnedIvfRouter(M, branching, height, rank, screen)
    router.begin(unit(router.n_leaves, M, seed=1))
    return router.requires_grad_(requires_grad=False)


def taught(branching, height, screen=0, rank=5):
    """Weights, biases and sizes as teaching and placing may leave them."""
    router = begun(branching, height, screen, rank)
    for parameter in router.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    router.log_size_L.copy_(torch.rand(router.n_leaves) * 3)
    router.finish()
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


@pytest.mark.parametrize("beam", [1, 3, 7])
def test_a_flat_routers_beam_is_the_densest_of_all(beam, texts):
    router = taught(60, 1)
    found, log_probs = router.route(Encoded(texts), beam)
    every, all_log_probs = router.route(Encoded(texts), router.n_leaves)
    assert found.tolist() == every[:, :beam].tolist()
    torch.testing.assert_close(log_probs, all_log_probs[:, :beam])


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


@pytest.mark.parametrize(("branching", "height", "beam"), [(8, 2, 4), (4, 3, 8), (64, 1, 4)])
def test_height_changes_nothing_where_every_node_is_kept(branching, height, beam, texts):
    flat, tall = taught(64, 1), begun(branching, height)
    tall.W[-1].copy_(flat.W[0])
    tall.b[-1].copy_(flat.b[0])
    tall.V.copy_(flat.V)
    tall.U.copy_(flat.U)
    wanted, found = flat.route(Encoded(texts), beam)[0], tall.route(Encoded(texts), beam)[0]
    assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize("scale", [SCALE, 3.0])
def test_it_begins_as_nearest_centroid(scale, texts):
    router = LearnedIvfRouter(M, 12, 1, 5)
    router.begin(unit(12, M, seed=1), scale)
    products = texts @ unit(12, M, seed=1).T
    found, log_probs = route_all(router, Encoded(texts), 12)
    assert found.tolist() == products.argsort(dim=1, descending=True).tolist()
    torch.testing.assert_close(log_probs, (scale * products).log_softmax(dim=1).gather(1, found))


def test_a_trees_inner_nodes_begin_as_means_of_their_children(texts):
    router, centroids = begun(4, 2), unit(16, M, seed=1)
    assert torch.equal(router.W[1], SCALE * centroids)
    means = F.normalize(centroids.view(4, 4, M).mean(dim=1), dim=1)
    torch.testing.assert_close(router.W[0], SCALE * means)
    two_nearest = (texts @ means.T).topk(2, dim=1).indices
    taken = router.route(Encoded(texts), 1)[0] // 4
    assert (taken == two_nearest).any(dim=1).all()


def test_size_is_a_prior_and_not_the_order(texts):
    router = begun(12, 1)
    order, before = route_all(router, Encoded(texts), 12)
    router.log_size_L[5] += 3
    again, after = route_all(router, Encoded(texts), 12)
    assert again.tolist() == order.tolist()
    grown = again == 5
    assert (after[grown] > before[grown]).all()
    assert (after[~grown] <= before[~grown]).all()


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


@pytest.mark.usefixtures("always")
def test_a_screen_of_every_dimension_is_no_screen(texts):
    screened, bare = taught(60, 1, screen=M), taught(60, 1)
    for found, wanted in zip(route_all(screened, Encoded(texts), 7), route_all(bare, Encoded(texts), 7), strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("always")
def test_a_narrow_screen_passes_some_of_the_best(texts):
    screened, bare = taught(60, 1, screen=6), taught(60, 1)
    beam = 5
    leaves, log_probs = route_all(screened, Encoded(texts), beam)
    every = bare.log_probs(texts)[-1]
    density = every - bare.log_size_L
    first = (screened.bend(texts) @ screened.screen_PM.T) @ screened.screened_LP.T + screened.b[0]
    passed = first.topk(SHORTLIST * beam, dim=1).indices
    best, recalled = density.topk(beam, dim=1).indices, 0
    for n in range(TEXTS):
        assert set(leaves[n].tolist()) <= set(passed[n].tolist())
        assert leaves[n].tolist() == sorted(passed[n].tolist(), key=lambda leaf, n=n: -density[n, leaf])[:beam]
        recalled += len(set(leaves[n].tolist()) & set(best[n].tolist()))
    assert recalled / TEXTS / beam > 0.8
    # The scores are those of all leaves but for the sum, which the first pass estimates.
    spread = log_probs - every.gather(1, leaves)
    torch.testing.assert_close(spread, spread[:, :1].expand_as(spread), atol=1e-4, rtol=0)


def test_the_screen_keeps_the_principal_components():
    router = taught(60, 1, screen=6)
    W = router.W[0].double()
    kept = W @ router.screen_PM.double().T @ router.screen_PM.double()
    wanted = torch.linalg.svdvals(W)[6:].square().sum()
    torch.testing.assert_close((W - kept).square().sum(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("branching", "height", "screen", "beam", "wanted"),
    [
        (60, 1, 0, 5, 2 * 5 * M + 60 * M),  # bend, every leaf
        (600, 1, 6, 5, 2 * 5 * M + 6 * M + 600 * 6 + 4 * 5 * M),  # bend, projection, first pass, four a visited leaf
        (600, 1, 6, 600, 2 * 5 * M + 600 * M),  # a wide beam scores all
        (12, 1, 6, 3, 2 * 5 * M + 12 * M),  # so do few leaves
        (4, 3, 0, 1, 2 * 5 * M + (1 + 2 + 2) * 4 * M),  # the root, then two nodes a level
        (4, 3, 0, 6, 2 * 5 * M + (1 + 4 + 12) * 4 * M),  # the root, all of its children, twelve below them
    ],
)
def test_multiply_adds(branching, height, screen, beam, wanted):
    assert begun(branching, height, screen).multiply_adds(beam) == wanted


def test_without_a_bend():
    router = begun(12, 1, rank=0)
    assert router.multiply_adds(3) == 12 * M
    assert torch.equal(router.bend(unit(3, M)), unit(3, M))


def test_a_screen_is_left_out_where_it_does_not_pay(texts):
    """The beam from which four scores a visited leaf cost more than all leaves' full scores."""
    router = taught(600, 1, screen=6)
    most = (600 * M - 6 * (M + 600)) // (4 * M)
    assert router.multiply_adds(most) < router.multiply_adds(most + 2) == router.multiply_adds(600)
    bare = taught(600, 1)
    assert (
        route_all(router, Encoded(texts), most + 2)[0].tolist() == route_all(bare, Encoded(texts), most + 2)[0].tolist()
    )


@pytest.mark.parametrize("shape", [(600, 1, 6), (60, 1, 0), (3, 3, 0)])
def test_one_query_is_as_in_a_batch(shape, texts):
    router = taught(*shape)
    leaves, log_probs = router.route(Encoded(texts), 4)
    for n in range(TEXTS):
        found, log_prob = router.route(Encoded(texts[n : n + 1]), 4)
        assert found[0].tolist() == leaves[n].tolist()
        torch.testing.assert_close(log_prob[0], log_probs[n], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(600, 1, 6), (60, 1, 0), (3, 3, 0)])
def test_no_texts(shape):
    router = taught(*shape)
    for way in (route_all, place_all):
        assert [part.shape for part in way(router, Encoded(torch.empty(0, M)), 4)] == [(0, 4), (0, 4)]


@pytest.mark.parametrize("shape", [(600, 1, 6, 5), (60, 1, 0, 0), (3, 3, 0, 2)])
def test_round_trip(shape, tmp_path, texts):
    router = taught(*shape)
    save_router(router, tmp_path)
    loaded = load_router(tmp_path)
    for way in (route_all, place_all):
        for found, wanted in zip(way(loaded, Encoded(texts), 4), way(router, Encoded(texts), 4), strict=True):
            assert torch.equal(found, wanted)
    branching, height, screen, rank = shape
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "type": "learned_ivf",
        "dimension": M,
        "branching": branching,
        "height": height,
        "rank": rank,
        "screen": screen,
        "groups": 0,
    }
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    assert (loaded.n_leaves, loaded.levels, loaded.reader) == (branching**height, height, None)


@pytest.mark.parametrize("beam", [1, 5, 15])
def test_behind_a_screen_probabilities_stay_below_one(beam, texts, always):
    router = taught(60, 1, screen=4)
    assert (router.route(Encoded(texts), beam)[1] <= 1e-6).all()
