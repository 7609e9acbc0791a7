"""Recall against documents visited, measured at every beam."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rayhier.evaluate.measures import Judge, Queries, Ranking
from rayhier.search.lists import Ints, LeafLists

Probe = Callable[[int], Ints]
"""Beam β -> the leaves each query visits, [q, β]."""


@dataclass(frozen=True)
class System:
    """An index under measurement: its lists, how it chooses among them, and what choosing costs."""

    name: str
    lists: LeafLists
    probe: Probe
    routing: Callable[[int], float]
    """Beam -> cost of routing one query, in documents' worth of multiply-adds."""


@dataclass(frozen=True)
class Point:
    """One measured point. Visited and cost are fractions of the corpus."""

    beam: int
    visited_mean: float
    visited_p95: float
    cost_mean: float
    leaves_mean: float
    measures: dict[str, float]

    def flat(self) -> dict[str, float]:
        """As report.json and curve.csv have it."""
        return {
            "beam": self.beam,
            "visited_mean": self.visited_mean,
            "visited_p95": self.visited_p95,
            "cost_mean": self.cost_mean,
            "leaves_mean": self.leaves_mean,
            **self.measures,
        }


def beams(leaves: int) -> list[int]:
    """1…16, then x1.25 up to all leaves.

    >>> beams(40)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 25, 31, 39, 40]
    """
    found = list(range(1, min(16, leaves) + 1))
    size = 16.0
    while found[-1] < leaves:
        size *= 1.25
        found.append(min(leaves, int(size)))
    return found


def measure_at(system: System, queries: Queries, judge: Judge, k: int, beam: int) -> tuple[Point, Ranking]:
    """Search every query with one beam."""
    leaves = system.probe(beam)
    ranking = Ranking(*system.lists.search(queries.vector_QM, leaves, k))
    documents = system.lists.documents
    visited = system.lists.visited(leaves) / documents
    scanned = system.lists.scanned(leaves) / documents
    point = Point(
        beam=beam,
        visited_mean=float(visited.mean()),
        visited_p95=float(np.quantile(visited, 0.95)),
        cost_mean=float(scanned.mean() + system.routing(beam) / documents),
        leaves_mean=float(leaves.shape[1]),
        measures=judge.mean(ranking),
    )
    return point, ranking


def measure_curve(system: System, queries: Queries, judge: Judge, k: int) -> list[Point]:
    """The whole curve of a system."""
    return [measure_at(system, queries, judge, k, beam)[0] for beam in beams(len(system.lists.sizes))]


def read(curve: Sequence[Point], visited: float, measure: str) -> float:
    """A measure at a fraction visited, linear between measured points; flat beyond them.

    A curve says nothing left of its first point: NaN there.
    """
    # A taller tree's beams are not nested: a wider one may visit a little less.
    points = sorted(curve, key=lambda point: point.visited_mean)
    x = [point.visited_mean for point in points]
    if visited < x[0]:
        return float("nan")
    return float(np.interp(visited, x, [point.measures[measure] for point in points]))


def reach(curve: Sequence[Point], measure: str, target: float, axis: str = "cost_mean") -> float:
    """Least `visited_mean` or `cost_mean`, linear between points, at which a measure reaches a target; NaN if never."""
    before: Point | None = None
    for point in curve:
        here = point.measures[measure]
        if here >= target:
            x = float(getattr(point, axis))
            if before is None:
                return x
            share = (target - before.measures[measure]) / (here - before.measures[measure])
            return float(getattr(before, axis)) + share * (x - float(getattr(before, axis)))
        before = point
    return float("nan")
