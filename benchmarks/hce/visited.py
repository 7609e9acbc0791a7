"""Documents visited against recall: leaves on HCE's vectors, and its nodes as leaves, beside contrast's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from benchmarks import cache
from benchmarks.hce.bench import Bench, Row
from benchmarks.hce.rows import PLAIN, S
from benchmarks.quality.systems import Candidate, build, columns, routed
from benchmarks.quality.view import Index, Questions, View
from benchmarks.statistics import Curve, Estimate, difference, estimate, mean_curve, recall_at
from benchmarks.tables import table
from rayhier.model.encoded import Encoded
from rayhier.model.router import place_all
from rayhier.spec.router import HceRouting
from rayhier.spec.train import HceTraining
from rayhier.train.encoder import EncoderPhase
from rayhier.train.hce.hce import Hce
from rayhier.train.hce.nodes import node_router

SHARES = (0.01, 0.02, 0.05, 0.1)


class Trained(View):
    """A collection under the encoder that a row of this benchmark trains."""

    def __init__(self, bench: Bench, row: Row, seed: int) -> None:
        super().__init__(bench.collection, bench.test.examples, seed, bench.results)
        self.bench, self.row = bench, row

    @cached_property
    def encoder(self) -> EncoderPhase:
        """The trained encoder."""
        return self.bench.trained(self.row, self.bench.test, self.seed)

    def routed(self, routing: HceRouting, questions: Questions) -> Candidate:
        """HCE's nodes as leaves, each document in the nearest."""
        assert isinstance(self.encoder, Hce)
        router = node_router(self.encoder, routing)
        leaf_N1 = place_all(router, Encoded.of(self.vectors), 1)[0].numpy()
        return routed(self, Index(router, leaf_N1), questions)


@dataclass(frozen=True)
class Visits:
    """Curves of each system, means over seeds, and its number of leaves."""

    curves: dict[str, Curve]
    leaves: dict[str, int]

    def points(self, system: str, control: str) -> list[Estimate]:
        """Points of R@100 by which a system is above a control at each share visited."""
        points_RS = 100 * difference(self.curves[system], self.curves[control], SHARES)
        return [estimate(points_RS[:, place]) for place in range(len(SHARES))]


LEARNED, NODES = "S, `learned_ivf`", "S, router `hce`"
PLAIN_LEARNED, PLAIN_LISTS = "contrast, `learned_ivf`", "contrast, `faiss_ivf`"
PAIRS = ((LEARNED, PLAIN_LEARNED), (NODES, PLAIN_LISTS))
"""Each of HCE's systems, and the one on contrast's vectors that it is told from."""
ROUTINGS = {
    NODES: HceRouting(type="hce"),
    f"{NODES}, `rounds: 0`": HceRouting(type="hce", rounds=0),
}
"""Nodes as shipped, and where training left them."""


def visits(bench: Bench, seeds: Sequence[int]) -> Visits:
    """Curves of learned_ivf and IVF on contrast's vectors, and of learned_ivf and nodes on HCE's."""
    questions = Questions.of(bench.test.queries, bench.collection.documents.ids)
    documents = len(bench.collection.documents.ids)
    auto = bench.collection.spec.leaves(documents)
    nodes = HceTraining.model_validate(S.train).tree.counts(documents)[-1]
    curves: dict[str, list[Curve]] = {}
    leaves: dict[str, int] = {}

    def measure(name: str, view: Trained, count: int, key: object, system: Callable[[], Candidate]) -> None:
        path = bench.results / f"visits-{bench.key(view.row, bench.test, view.seed)}-{key}.npz"
        curves.setdefault(name, []).append(Curve.read(cache.kept(path, lambda: columns(system()))))
        leaves[name] = count

    for seed in seeds:
        plain, hce = (Trained(bench, row, seed) for row in (PLAIN, S))
        for name, view in ((PLAIN_LEARNED, plain), (LEARNED, hce)):
            measure(name, view, auto, auto, partial(build, view, "learned_ivf", auto, questions))
        lists = partial(build, plain, "faiss_ivf_same_encoder", nodes, questions)
        measure(PLAIN_LISTS, plain, nodes, nodes, lists)
        for name, routing in ROUTINGS.items():
            key = cache.key(routing.model_dump(mode="json"))
            measure(name, hce, nodes, key, partial(hce.routed, routing, questions))
    return Visits({name: mean_curve(own) for name, own in curves.items()}, leaves)


def lines(found: Visits) -> list[str]:
    """R@100 at shares visited with intervals, cost beside, each of HCE's systems over contrast's of as many leaves."""
    rows = []
    for name, own in found.curves.items():
        cost = np.interp(0.05, own.visited_PQ.mean(axis=1), own.cost_PQ.mean(axis=1))
        recalls = [f"{value:.3f}" for value in (own.exact_Q.mean(), *recall_at(own, SHARES)[0])]
        rows.append([name, f"{found.leaves[name]:,}", *recalls, f"{cost:.1%}"])
    told = [
        [f"{system} over {control}", *(own.shown for own in found.points(system, control))] for system, control in PAIRS
    ]
    head = ["", "leaves", "exact", *(f"{share:.0%} visited" for share in SHARES), "cost at 5%"]
    return [*table(head, rows), "", *table(["points of R@100", *(f"{share:.0%}" for share in SHARES)], told)]
