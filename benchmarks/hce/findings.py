"""What is measured of each collection: rows beside each other, and paired 95% intervals between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.commands import clock
from benchmarks.hce.bench import Bench, Row, Split
from benchmarks.hce.visited import Visits
from benchmarks.statistics import paired
from rayhier.arrays import Bools, Values
from rayhier.evaluate.significance import Interval


@dataclass(frozen=True)
class Comparison:
    """Rows measured on one split, and what every query found."""

    split: Split
    rows: Sequence[Row]
    seeds: int
    found: dict[str, dict[str, Values]]
    """Name of a row -> measure -> values [s, q] of seeds and queries."""

    @property
    def groups(self) -> dict[str, Bools]:
        """Queries of each group that has any, by its name."""
        new_Q = self.split.new_Q
        every = {"all": np.ones(len(new_Q), dtype=bool)}
        return every | ({"new answers": new_Q} if new_Q.any() and not new_Q.all() else {})

    def mean(self, row: str, measure: str, group: str = "all") -> float:
        """Mean over the queries of a group."""
        return float(self.found[row][measure][:, self.groups[group]].mean())

    def difference(self, row: str, control: str, measure: str, group: str = "all") -> Interval:
        """Points by which a row is above a control, and its 95% interval, from resamples of the queries."""
        own_Q = self.groups[group]
        return paired(*(self.found[name][measure].mean(axis=0)[own_Q] for name in (row, control)))


def compare(bench: Bench, split: Split, rows: Sequence[Row], seeds: Sequence[int]) -> Comparison:
    """Measure rows on a split, each with every seed, and say when each is done."""
    found, report = {}, clock()
    for row in rows:
        own = [bench.values(row, split, seed) for seed in (seeds if row.train else seeds[:1])]
        found[row.name] = {measure: np.stack([one[measure] for one in own]) for measure in own[0]}
        report(f"{bench.name}, {split.name}: {row.name}")
    return Comparison(split, rows, len(seeds), found)


@dataclass(frozen=True)
class Findings:
    """All that is measured on one collection."""

    name: str
    about: str
    judged: Comparison | None
    """Rows trained by judged pairs."""
    alone: Comparison | None
    """Rows trained by documents alone."""
    layered: Comparison | None
    """Rows with the last layer trained."""
    branchings: Comparison | None
    """Rows of other branchings (Figure 4)."""
    visits: Visits | None
    """Recall at documents visited."""
