"""What is measured of one collection, query by query: rows at every size, and what else its page tells."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.retreever.bench import Bench, Row
from benchmarks.retreever.rows import COARSE
from benchmarks.retreever.speed import Speeds
from benchmarks.statistics import Curve, paired
from rayhier.arrays import Values
from rayhier.evaluate.significance import Interval


@dataclass(frozen=True)
class Sized:
    """What every query finds by rows' representations, of every size."""

    rows: Sequence[Row]
    found: Mapping[str, Mapping[int, Mapping[str, Values]]]
    """Name of a row -> size -> measure -> values [s, q] of seeds and queries."""

    def sizes(self, name: str) -> list[int]:
        """Sizes of a row, small first."""
        return sorted(self.found[name])

    def full(self, name: str) -> int:
        """The largest size of a row."""
        return max(self.found[name])

    def seeds(self, name: str, size: int, measure: str) -> Values:
        """Mean over queries of each seed [s]."""
        return np.asarray(self.found[name][size][measure].mean(axis=1))

    def mean(self, name: str, size: int, measure: str) -> float:
        """Mean over queries and seeds."""
        return float(self.found[name][size][measure].mean())

    def coarse(self, name: str, measure: str) -> Values:
        """Mean over the coarse sizes of each seed [s]."""
        return np.asarray(np.mean([self.seeds(name, size, measure) for size in COARSE], axis=0))

    def difference(self, name: str, control: str, measure: str) -> Interval:
        """Points by which a row at its full size is above a control at its own, with a 95% interval over queries."""
        own_Q, control_Q = (self.found[one][self.full(one)][measure].mean(axis=0) for one in (name, control))
        return paired(own_Q, control_Q)


def sized(bench: Bench, rows: Sequence[tuple[Row, int]], report: Callable[[str], None]) -> Sized:
    """Measure rows, each with its number of seeds."""
    found: dict[str, dict[int, dict[str, Values]]] = {}
    for row, seeds in rows:
        own = [bench.values(row, seed) for seed in range(seeds)]
        found[row.name] = {
            size: {name: np.stack([one[size][name] for one in own]) for name in own[0][size]} for size in own[0]
        }
        report(f"{bench.name}: {row.name}")
    return Sized([row for row, _ in rows], found)


@dataclass(frozen=True)
class Findings:
    """All that is measured of one collection."""

    name: str
    about: str
    told: Sized
    """Rows at every size."""
    leaves: Mapping[str, Mapping[str, Values]]
    """Tree -> what its best leaf alone finds."""
    curves: Mapping[str, Curve]
    """Tree, or lists of k-means -> recall at documents visited."""
    similarities: Mapping[str, Mapping[str, Values]]
    """Tree -> cosines of documents by the depth of their lowest common ancestor."""
    stored: Mapping[int, Mapping[str, Values]]
    """Level -> what it finds as an index stores it."""
    shortlists: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    """How a shortlist is made -> what it finds."""
    times: Speeds | None = None
    attending: Sized | None = None
    """Splits by attention beside others, of as many steps."""
    distances: Mapping[str, Values] | None = None
    """Cosines of the embeddings of splits by their distance."""
