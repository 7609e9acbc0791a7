"""docs/hce.md: one table a collection, every row with its paired interval to a control, for all and for new answers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.hce.bench import Bench, Row, Split
from benchmarks.tables import table
from rayhier.arrays import Bools, Values
from rayhier.evaluate.significance import bootstrap

Found = dict[str, Values]
"""Measure -> value of every query, the mean over seeds."""


@dataclass(frozen=True)
class Comparison:
    """Rows measured on one split, and what every query found."""

    split: Split
    seeds: int
    found: dict[str, Found]
    """Name of a row -> what it found."""
    spread: dict[str, dict[str, float]]
    """Name of a row -> measure -> half the range over seeds."""

    @property
    def groups(self) -> dict[str, Bools]:
        """Queries of each group that has any, by its name."""
        new_Q = self.split.new_Q
        every = {"all": np.ones(len(new_Q), dtype=bool)}
        return every | ({"new answers": new_Q} if new_Q.any() and not new_Q.all() else {})

    def mean(self, row: str, measure: str, group: str = "all") -> float:
        """Mean over the queries of a group."""
        return float(self.found[row][measure][self.groups[group]].mean())

    def difference(self, row: str, control: str, measure: str, group: str = "all") -> tuple[float, float, float]:
        """Points by which a row is above a control, and its 95% interval, from resamples of the queries."""
        own_Q = self.found[row][measure] - self.found[control][measure]
        interval = bootstrap(100 * own_Q[self.groups[group], None])[0]
        return interval.difference, interval.low, interval.high


def compare(bench: Bench, split: Split, rows: Sequence[Row], seeds: Sequence[int]) -> Comparison:
    """Measure rows on a split, each with every seed."""
    found, spread = {}, {}
    for row in rows:
        own = [bench.values(row, split, seed) for seed in (seeds if row.train else seeds[:1])]
        found[row.name] = {measure: np.mean([one[measure] for one in own], axis=0) for measure in own[0]}
        means = {measure: [float(one[measure].mean()) for one in own] for measure in own[0]}
        spread[row.name] = {measure: (max(values) - min(values)) / 2 for measure, values in means.items()}
    return Comparison(split, len(seeds), found, spread)


def lines(
    told: Comparison, rows: Sequence[Row], control: Row, measures: Sequence[str], group: str = "all"
) -> list[str]:
    """A table of rows: each measure, and points above the control with their interval."""
    head = ["", *(cell for measure in measures for cell in (measure, f"over {control.name.partition(',')[0]}"))]
    return table(head, [[row.name, *_cells(told, row, control, measures, group)] for row in rows])


def _cells(told: Comparison, row: Row, control: Row, measures: Sequence[str], group: str) -> list[str]:
    cells = []
    for measure in measures:
        spread = f" ± {told.spread[row.name][measure]:.3f}" if row.train and group == "all" else ""
        cells.append(f"{told.mean(row.name, measure, group):.3f}{spread}")
        if row.name == control.name:
            cells.append("")
        else:
            value, low, high = told.difference(row.name, control.name, measure, group)
            cells.append(f"{value:+.1f} [{low:+.1f}, {high:+.1f}]")
    return cells


def goal(title: str, value: float, least: float, digits: int = 3) -> str:
    """A line of the goals' table: what was asked, and what came out."""
    return f"| {title} | {value:.{digits}f} | at least {least:g} | {'met' if value >= least else 'MISSED'} |"
