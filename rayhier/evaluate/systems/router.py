"""The index itself as a system to measure: a trained router over its leaves."""

from rayhier.arrays import Ints
from rayhier.dataset.ranking import Ranking
from rayhier.evaluate.collection import Collection
from rayhier.evaluate.curve import System, beams
from rayhier.evaluate.part import ROUTER, Part
from rayhier.model.encoded import Encoded
from rayhier.model.router import Router, route_all
from rayhier.scores.call_budget import run_sync
from rayhier.search.model import Model
from rayhier.search.request import Request, Rules
from rayhier.search.retrieve import Reply, Retriever, Scan, Work
from rayhier.search.routes import find_routes
from rayhier.spec.filter import Filter


def widened_system(name: str, collection: Collection, model: Model, queries: Encoded, k: int, where: Filter) -> System:
    """Make a system that searches with a filter: a query with too few matching documents visits more leaves.

    The parts of the collection apply the filter. Routing costs as much as that of the first leaves.
    """
    router, dimension = model.router, queries.vectors.shape[1]
    rules = Rules(model.spec.search, router.n_leaves, int(collection.sizes(ROUTER).sum()))
    retriever = Retriever(rules, model.widen)

    def scan(work: list[Work]) -> list[Reply]:
        scans = [piece for piece in work if isinstance(piece, Scan)]
        return [
            Reply(collection.parts.call(Part.scan, ROUTER, scan.query_QM, scan.leaves_QB, scan.k)) for scan in scans
        ]

    def rank(beam: int) -> Ranking:
        request = Request(queries.numpy, k, beam, where=where)
        return run_sync(retriever(request, find_routes(model, queries, beam)), scan).ranking

    return System(
        name, collection.matching, beams(router.n_leaves), rank, lambda beam: _routing(router, beam, dimension)
    )


def router_system(name: str, collection: Collection, router: Router, queries: Encoded, k: int) -> System:
    """Make a system of a router over its leaves; its multiply-adds, as dot products, are the cost of routing."""
    dimension = queries.vectors.shape[1]

    def probe(beam: int, rows: slice) -> Ints:
        return route_all(router, queries[rows], beam)[0].numpy()

    return collection.system(name, ROUTER, queries.numpy, k, probe, lambda beam: _routing(router, beam, dimension))


def _routing(router: Router, beam: int, dimension: int) -> float:
    """Cost of routing a query: its multiply-adds, as dot products of vectors."""
    return router.multiply_adds(beam) / dimension
