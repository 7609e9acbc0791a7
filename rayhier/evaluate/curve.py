"""Measure curves of recall, or of another measure, against documents visited: one point for each beam."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rayhier.arrays import Values
from rayhier.dataset.measures import Judge, means
from rayhier.dataset.ranking import Ranking

LARGE, MOST_VISITED = 1_000_000, 0.25
"""Number of documents above which a curve ends early, and the share of leaves that its widest beam visits."""


@dataclass(frozen=True)
class System:
    name: str
    documents: int
    beams: Sequence[int]
    """Beams to measure: the most leaves that a query visits, or for HNSW values of efSearch."""
    rank: Callable[[int], Ranking]
    routing: Callable[[int], float]
    seconds: Callable[[int], Values] | None = None
    """Function from a beam to the seconds [n] that n single queries take on one core. None if no query is timed."""


@dataclass(frozen=True)
class Point:
    """Measures and costs of a system at one beam. Visited and cost are shares of the corpus."""

    beam: int
    visited_mean: float
    visited_p95: float
    cost_mean: float
    leaves_mean: float
    measures: dict[str, float]
    values: Mapping[str, Values] = field(default_factory=dict, compare=False, repr=False)
    microseconds: float | None = field(default=None, compare=False)
    """Median time of a single query on one core. None if the time was not measured."""

    def flat(self) -> dict[str, float]:
        costs = ("beam", "visited_mean", "visited_p95", "cost_mean", "leaves_mean")
        timed = {} if self.microseconds is None else {"microseconds": self.microseconds}
        return {**{name: getattr(self, name) for name in costs}, **timed, **self.measures}


def beams(leaves: int, documents: int = 0) -> list[int]:
    """Return the beams to measure: 1 to 16, then each 1.25 times the previous beam, up to all leaves.

    In a corpus of more than LARGE documents, the last beam is a quarter of the leaves.

    >>> beams(40)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 25, 31, 39, 40]
    >>> beams(100, 2_000_000)[-3:]
    [16, 20, 25]
    """
    most = leaves if documents <= LARGE else math.ceil(leaves * MOST_VISITED)
    widths = list(range(1, min(16, most) + 1))
    size = 16.0
    while widths[-1] < most:
        size *= 1.25
        widths.append(min(most, int(size)))
    return widths


def measure_at(system: System, judge: Judge, beam: int) -> tuple[Point, Ranking]:
    ranking = system.rank(beam)
    visited = ranking.visited_Q / system.documents
    values = judge.values(ranking)
    seconds = None if system.seconds is None else system.seconds(beam)
    point = Point(
        beam=beam,
        visited_mean=float(visited.mean()),
        visited_p95=float(np.quantile(visited, 0.95)),
        cost_mean=float(ranking.scanned_Q.mean() + system.routing(beam)) / system.documents,
        leaves_mean=float(ranking.leaves_Q.mean()),
        measures=means(values),
        values=values,
        microseconds=None if seconds is None else float(1e6 * np.median(seconds)),
    )
    return point, ranking


def measure_curve(system: System, judge: Judge) -> Iterator[Point]:
    """Measure a system at each of its beams. A beam is measured when its point is consumed."""
    return (measure_at(system, judge, beam)[0] for beam in system.beams)


def read(curve: Sequence[Point], visited: float, measure: str) -> float:
    """Read a measure off a curve at a share of documents visited, linear between points. NaN before the first point."""
    place = _between(curve, visited)
    if place is None:
        return float("nan")
    low, high, share = place
    return (1 - share) * low.measures[measure] + share * high.measures[measure]


def read_values(curve: Sequence[Point], visited: float, measure: str) -> Values | None:
    """Read each query's measure [q] off a curve at a share of documents visited. None before the first point."""
    place = _between(curve, visited)
    if place is None:
        return None
    low, high, share = place
    return np.asarray((1 - share) * low.values[measure] + share * high.values[measure])


def _between(curve: Sequence[Point], visited: float) -> tuple[Point, Point, float] | None:
    """Return a curve's points below and above a share visited, and the place of the share between both, 0 to 1."""
    # In a tree of several levels, a wider beam may visit slightly fewer documents.
    points = sorted(curve, key=lambda point: point.visited_mean)
    place = int(np.searchsorted([point.visited_mean for point in points], visited, side="right"))
    if place == 0:
        return None
    low, high = points[place - 1], points[min(place, len(points) - 1)]
    if low is high:
        return low, low, 0.0
    return low, high, (visited - low.visited_mean) / (high.visited_mean - low.visited_mean)


def mean_curve(curves: Sequence[Sequence[Point]]) -> list[Point]:
    """Return the mean of the curves of several seeds, point by point, also for each query."""
    return [_mean_point(points) for points in zip(*curves, strict=True)]


def _mean_point(points: Sequence[Point]) -> Point:
    flat = [point.flat() for point in points]
    mean: dict[str, Any] = {name: float(np.mean([row[name] for row in flat])) for name in flat[0]}
    mean["measures"] = {name: mean.pop(name) for name in points[0].measures}
    values = {name: np.mean([point.values[name] for point in points], axis=0) for name in points[0].values}
    return Point(**{**mean, "beam": points[0].beam}, values=values)


def reach(curve: Iterable[Point], measure: str, target: float, axis: str = "cost_mean") -> float:
    """Return the least `axis` (cost, visits, microseconds) at which a measure reaches `target`. NaN if no point does.

    The value is linear between points. Later points than the one that reaches the target are not measured.
    """
    before: Point | None = None
    for point in curve:
        value, x = point.measures[measure], float(getattr(point, axis))
        if value >= target:
            if before is None:
                return x
            begin = float(getattr(before, axis))
            share = (target - before.measures[measure]) / (value - before.measures[measure])
            return begin + share * (x - begin)
        before = point
    return float("nan")
