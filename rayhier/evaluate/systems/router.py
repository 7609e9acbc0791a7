"""The index itself: a trained router over its leaf map."""

from rayhier.arrays import Ints
from rayhier.dataset.ranking import Ranking, merge
from rayhier.evaluate.collection import Collection
from rayhier.evaluate.curve import System, beams
from rayhier.evaluate.part import ROUTER, Part
from rayhier.model.encoded import Encoded
from rayhier.model.router import Router, route_all
from rayhier.search.widen import Goal, Widening


def widened_system(
    name: str, collection: Collection, router: Router, own: Router, queries: Encoded, k: int, widest: int
) -> System:
    """A router as searches with a filter use it: queries of which too few documents match visit more leaves.

    `own` routes first; it may have each query spare leaves. Routing costs that of the first leaves.
    """
    dimension, leaves = queries.vectors.shape[1], router.n_leaves
    rows = int(collection.sizes(ROUTER).sum())

    def rank(beam: int) -> Ranking:
        first = route_all(own, queries, beam)[0].numpy()
        widening = Widening(first, Goal.of(k, beam, leaves, rows, widest))
        while True:
            asked = queries[widening.asked_A].numpy
            widening.add_results(merge(collection.parts.call(Part.scan, ROUTER, asked, widening.leaves, k), k))
            if widening.done:
                return widening.ranking
            widening.visit(route_all(router, queries[widening.asked_A], widening.wider)[0].numpy())

    return System(name, collection.matching, beams(leaves), rank, lambda beam: own.multiply_adds(beam) / dimension)


def router_system(name: str, collection: Collection, router: Router, queries: Encoded, k: int) -> System:
    """A router over the leaves it filled; routing costs the router's multiply-adds, as dot products."""
    dimension = queries.vectors.shape[1]

    def probe(beam: int) -> Ints:
        return route_all(router, queries, beam)[0].numpy()

    def routing(beam: int) -> float:
        return router.multiply_adds(beam) / dimension

    return collection.system(name, ROUTER, queries.numpy, k, probe, routing)
