"""Models that search: without encoded queries, and with other routers."""

import weakref

from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import opened, save_router
from rayhier.search.routing.routes import Model, find_routes

from ...toys import job


def model(router, text_encoder=None):
    return Model(opened(router), text_encoder, job(router={"type": "learned_ivf"}))


def test_queries_that_are_not_encoded_have_no_leaves_and_no_log_probabilities():
    router = LearnedIvfRouter(4, 6, 0)
    routes = find_routes(model(router), ["oak", "ash"], 3, encodes=False)
    assert routes.leaves_QB.shape == routes.log_probs.shape == routes.log_densities.shape == (2, 0)


def test_a_model_with_another_router_does_not_keep_those_before(tmp_path):
    router = LearnedIvfRouter(4, 6, 0)
    save_router(router, tmp_path)
    encoder = object()
    first = model(router, lambda: encoder)
    gone, second = weakref.ref(first), first.with_router(tmp_path).with_router(tmp_path)
    del first
    assert gone() is None
    assert second.text_encoder is encoder
