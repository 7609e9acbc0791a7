"""Densities of leaves, which order the visits of a router that knows their sizes."""

import weakref

import numpy as np
import torch

from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import save_router
from rayhier.search.routing.routes import Model, find_routes

from ...toys import job


def model(router):
    return Model(router, None, job(router={"type": "learned_ivf"}))


def test_leaves_are_visited_densest_first_which_is_not_most_probable_first():
    router = LearnedIvfRouter(4, 6, 0).requires_grad_(requires_grad=False)
    router.begin(torch.randn(6, 4, generator=torch.Generator().manual_seed(1)), scale=1.0)
    router.log_size_L.copy_(torch.tensor([1.0, 50.0, 3.0, 400.0, 9.0, 20.0]).log())
    routed = model(router)
    query_QM = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    routes = find_routes(routed, query_QM, 6)
    leaves_QB, log_prob_QB, densities_QB = routes.leaves_QB, routes.log_probs, routes.log_densities
    np.testing.assert_allclose(np.exp(log_prob_QB).sum(axis=1), 1, rtol=1e-5)
    by_hand_QB = np.take_along_axis(query_QM @ router.W.numpy().T, leaves_QB, axis=1)
    np.testing.assert_allclose(densities_QB - densities_QB[:, :1], by_hand_QB - by_hand_QB[:, :1], atol=1e-5)
    assert (np.diff(densities_QB) <= 0).all()
    assert (np.diff(log_prob_QB) > 0).any()


def test_queries_that_are_not_encoded_have_no_leaves_and_no_log_probabilities():
    router = LearnedIvfRouter(4, 6, 0).requires_grad_(requires_grad=False)
    routes = find_routes(model(router), ["oak", "ash"], 3, encodes=False)
    assert routes.leaves_QB.shape == routes.log_probs.shape == routes.log_densities.shape == (2, 0)


def test_a_model_with_another_router_does_not_keep_those_before(tmp_path):
    router = LearnedIvfRouter(4, 6, 0)
    save_router(router, tmp_path)
    first = model(router)
    first.text_encoder = encoder = object()
    gone, second = weakref.ref(first), first.with_router(tmp_path).with_router(tmp_path)
    del first
    assert gone() is None
    assert second.text_encoder is encoder
