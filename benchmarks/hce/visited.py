"""Documents visited against recall: leaves on HCE's vectors, and its nodes as leaves, beside contrast's."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.hce.bench import Bench, Row
from benchmarks.hce.rows import PLAIN, S
from benchmarks.quality.recall import Questions
from benchmarks.quality.statistics import Curve, difference, estimate, mean_curve, recall_at, sample
from benchmarks.quality.systems import Candidate, build, routed
from benchmarks.quality.view import Index, View
from benchmarks.tables import table
from benchmarks.training import train
from rayhier.model.encoded import Encoded
from rayhier.model.router import place_all
from rayhier.spec.router import HceRouting
from rayhier.train.encoder import EncoderPhase
from rayhier.train.hce.hce import Hce
from rayhier.train.hce.nodes import node_router

SHARES = (0.01, 0.02, 0.05, 0.1)


class Trained(View):
    """A collection under the encoder that a row of this benchmark trains."""

    def __init__(self, bench: Bench, row: Row, seed: int, folder: Path) -> None:
        super().__init__(bench.collection, bench.test.examples, seed, folder)
        self.bench, self.row = bench, row

    @cached_property
    def contrast(self) -> EncoderPhase:  # type: ignore[override]
        """The trained encoder."""
        phase = self.bench.phase(self.row, self.bench.test, self.seed)
        train(phase, self.folder / "encoder.safetensors")
        return phase

    def nodes(self) -> Index:
        """HCE's nodes as leaves, each document with the nearest."""
        phase = self.contrast
        assert isinstance(phase, Hce)
        router = node_router(phase, HceRouting(type="hce"))
        leaf_N1 = place_all(router, Encoded.of(self.documents()), 1)[0].numpy()
        return Index(router, leaf_N1)


@dataclass(frozen=True)
class Visits:
    """Curves of each system, means over seeds, and its number of leaves."""

    curves: dict[str, Curve]
    leaves: dict[str, int]


def visits(bench: Bench, seeds: Sequence[int], folder: Path) -> Visits:
    """Curves of the four systems: learned_ivf and IVF on contrast's vectors, learned_ivf and nodes on HCE's."""
    questions = Questions.of(bench.test.queries, bench.collection.documents.ids)
    curves: dict[str, list[Curve]] = {}
    leaves: dict[str, int] = {}
    for seed in seeds:
        contrast, hce = (Trained(bench, row, seed, folder / f"{row.name[:8]}-{seed}") for row in (PLAIN, S))
        nodes = hce.nodes()
        count = nodes.router.n_leaves
        auto = bench.collection.spec.leaves(len(bench.collection.documents.ids))
        systems: dict[str, tuple[Candidate, int]] = {
            "contrast, `learned_ivf`": (build(contrast, "learned_ivf", auto, questions), auto),
            "S, `learned_ivf`": (build(hce, "learned_ivf", auto, questions), auto),
            "contrast, `faiss_ivf`": (build(contrast, "faiss_ivf_same_encoder", count, questions), count),
            "S, router `hce`": (routed(hce, nodes, questions), count),
        }
        for name, (system, own) in systems.items():
            curves.setdefault(name, []).append(curve(system))
            leaves[name] = own
    return Visits({name: mean_curve(own) for name, own in curves.items()}, leaves)


def curve(system: Candidate) -> Curve:
    """What every query found and paid, beam after beam."""
    rows = list(system.walk())
    recall, visited, cost = (
        np.stack([getattr(row, name) for row in rows]).astype(np.float64)
        for name in ("recall_Q", "visited_Q", "cost_Q")
    )
    return Curve(recall, visited, cost, np.asarray(system.exact(), dtype=np.float64))


def lines(found: Visits) -> list[str]:
    """R@100 at shares visited with intervals, cost beside, each of HCE's systems over contrast's of as many leaves."""
    head = ["", "leaves", "exact", *(f"{share:.0%} visited" for share in SHARES), "cost at 5%"]
    rows = [
        [
            name,
            f"{found.leaves[name]:,}",
            f"{own.exact_Q.mean():.3f}",
            *(f"{value:.3f}" for value in recall_at(own, sample(len(own.exact_Q)), SHARES)[0]),
            f"{_cost(own):.1%}",
        ]
        for name, own in found.curves.items()
    ]
    names = list(found.curves)
    told = [
        [f"{system} over {control}", *(_points(found, system, control, place) for place in range(len(SHARES)))]
        for system, control in ((names[1], names[0]), (names[3], names[2]))
    ]
    return [*table(head, rows), "", *table(["points of R@100", *(f"{share:.0%}" for share in SHARES)], told)]


def _points(found: Visits, system: str, control: str, place: int) -> str:
    value = estimate(100 * difference(found.curves[system], found.curves[control], SHARES)[:, place])
    return f"{value.value:+.1f} [{value.low:+.1f}, {value.high:+.1f}]"


def _cost(own: Curve) -> float:
    """Cost, as a share of the corpus, where 5% of the documents are visited."""
    return float(np.interp(0.05, own.visited_PQ.mean(axis=1), own.cost_PQ.mean(axis=1)))
