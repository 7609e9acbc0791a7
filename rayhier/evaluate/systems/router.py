"""The index itself: a trained router over its leaf map."""

from rayhier.arrays import Ints
from rayhier.evaluate.collection import Collection
from rayhier.evaluate.curve import System
from rayhier.evaluate.part import ROUTER
from rayhier.model.encoded import Encoded
from rayhier.model.router import Router, route_all


def router_system(name: str, collection: Collection, router: Router, queries: Encoded, k: int) -> System:
    """A router over the leaves it filled; routing costs the router's multiply-adds, as dot products."""
    dimension = queries.vectors.shape[1]

    def probe(beam: int) -> Ints:
        return route_all(router, queries, beam)[0].numpy()

    def routing(beam: int) -> float:
        return router.multiply_adds(beam) / dimension

    return collection.system(name, ROUTER, queries.numpy, k, probe, routing)
