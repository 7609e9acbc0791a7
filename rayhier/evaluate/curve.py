"""Recall against documents visited, measured at every beam."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rayhier.arrays import Values
from rayhier.dataset.measures import Judge, means
from rayhier.dataset.ranking import Ranking


@dataclass(frozen=True)
class System:
    """An index to measure, on a fixed set of queries."""

    name: str
    documents: int
    beams: Sequence[int]
    """Widths to measure: leaves searched, or for HNSW efSearch."""
    rank: Callable[[int], Ranking]
    """Beam -> results of every query and their cost."""
    routing: Callable[[int], float]
    """Beam -> dot products of routing a query."""


@dataclass(frozen=True)
class Point:
    """One measured point. Visited and cost are fractions of the corpus."""

    beam: int
    visited_mean: float
    visited_p95: float
    cost_mean: float
    leaves_mean: float
    measures: dict[str, float]
    values: Mapping[str, Values] = field(default_factory=dict, compare=False, repr=False)
    """Each measure of every query [q]; `measures` has their means."""

    def flat(self) -> dict[str, float]:
        """Return the point as a mapping: a row of curve.csv."""
        return {
            "beam": self.beam,
            "visited_mean": self.visited_mean,
            "visited_p95": self.visited_p95,
            "cost_mean": self.cost_mean,
            "leaves_mean": self.leaves_mean,
            **self.measures,
        }


def beams(leaves: int) -> list[int]:
    """Beams to measure: 1 to 16, then each 1.25 times the one before, up to all leaves.

    >>> beams(40)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 25, 31, 39, 40]
    """
    widths = list(range(1, min(16, leaves) + 1))
    size = 16.0
    while widths[-1] < leaves:
        size *= 1.25
        widths.append(min(leaves, int(size)))
    return widths


def measure_at(system: System, judge: Judge, beam: int) -> tuple[Point, Ranking]:
    """Search every query with one beam."""
    ranking = system.rank(beam)
    visited = ranking.visited_Q / system.documents
    values = judge.values(ranking)
    point = Point(
        beam=beam,
        visited_mean=float(visited.mean()),
        visited_p95=float(np.quantile(visited, 0.95)),
        cost_mean=float(ranking.scanned_Q.mean() + system.routing(beam)) / system.documents,
        leaves_mean=float(ranking.leaves_Q.mean()),
        measures=means(values),
        values=values,
    )
    return point, ranking


def measure_curve(system: System, judge: Judge) -> Iterator[Point]:
    """Yield the curve of a system; each point is measured when it is read."""
    return (measure_at(system, judge, beam)[0] for beam in system.beams)


def read(curve: Sequence[Point], visited: float, measure: str) -> float:
    """A measure at a fraction visited, linear between measured points.

    Beyond the last point it is flat, before the first point it is NaN.
    """
    place = between(curve, visited)
    if place is None:
        return float("nan")
    low, high, share = place
    return (1 - share) * low.measures[measure] + share * high.measures[measure]


def read_values(curve: Sequence[Point], visited: float, measure: str) -> Values | None:
    """A measure of every query [q] at a fraction visited, linear between points; None before the first point."""
    place = between(curve, visited)
    if place is None:
        return None
    low, high, share = place
    return np.asarray((1 - share) * low.values[measure] + share * high.values[measure])


def between(curve: Sequence[Point], visited: float) -> tuple[Point, Point, float] | None:
    """The two points around a fraction visited, and its place between them from 0 to 1; None before the first point."""
    # A taller tree's beams are not nested: a wider one may visit a little less.
    points = sorted(curve, key=lambda point: point.visited_mean)
    place = int(np.searchsorted([point.visited_mean for point in points], visited, side="right"))
    if place == 0:
        return None
    low, high = points[place - 1], points[min(place, len(points) - 1)]
    if low is high:
        return low, low, 0.0
    return low, high, (visited - low.visited_mean) / (high.visited_mean - low.visited_mean)


def mean_curve(curves: Sequence[Sequence[Point]]) -> list[Point]:
    """The mean of several seeds' curves, point by point."""
    return [mean_point(points) for points in zip(*curves, strict=True)]


def mean_point(points: Sequence[Point]) -> Point:
    """Return the mean of several seeds' points, for each query too."""
    flat = [point.flat() for point in points]
    mean = {name: float(np.mean([row[name] for row in flat])) for name in flat[0]}
    return Point(
        points[0].beam,
        mean["visited_mean"],
        mean["visited_p95"],
        mean["cost_mean"],
        mean["leaves_mean"],
        {name: mean[name] for name in points[0].measures},
        {name: np.mean([point.values[name] for point in points], axis=0) for name in points[0].values},
    )


def reach(curve: Iterable[Point], measure: str, target: float, axis: str = "cost_mean") -> float:
    """Least `visited_mean` or `cost_mean`, linear between points, at which a measure reaches a target; NaN if never.

    Reads the curve no further than the point that reaches the target.
    """
    before: Point | None = None
    for point in curve:
        value = point.measures[measure]
        if value >= target:
            x = float(getattr(point, axis))
            if before is None:
                return x
            share = (target - before.measures[measure]) / (value - before.measures[measure])
            return float(getattr(before, axis)) + share * (x - float(getattr(before, axis)))
        before = point
    return float("nan")
