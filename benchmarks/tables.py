"""Tables, numbers and goals, formatted for pages and terminals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

UNKNOWN = "-"
"""Stands where nothing was measured."""


def line(cells: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def heading(head: Sequence[str]) -> list[str]:
    """The first two lines of a Markdown table: its first column stands left, all others right."""
    return [line(head), f"|---|{'---:|' * (len(head) - 1)}"]


def table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [*heading(head), *map(line, rows)]


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Mean and half the range of several seeds; a dash where one is unknown."""
    if np.isnan(values).any():
        return UNKNOWN
    return f"{np.mean(values):.{digits}f} ± {(max(values) - min(values)) / 2:.{digits}f}"


def mean(values: Sequence[float], form: str = "3f") -> str:
    """Mean of several seeds; a dash where one is unknown."""
    return UNKNOWN if np.isnan(values).any() else f"{np.mean(values):.{form}}"


def ranged(values: Sequence[float], digits: int = 0) -> str:
    """The median of some runs, and the least and most of them where they differ; empty where there are none."""
    if not values:
        return ""
    median, least, most = (f"{value:,.{digits}f}" for value in (np.median(values), min(values), max(values)))
    return median if least == most else f"{median} ({least} to {most})"


def quotient(ratios: Sequence[float]) -> str:
    """Median and range of the ratios of paired rounds."""
    return f"{np.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def verdict(met: bool | None) -> str:
    """A word for whether a goal is met; None: nothing happened that could be measured."""
    return "not measured" if met is None else "met" if met else "MISSED"


@dataclass(frozen=True)
class Goal:
    """What was asked, what came out, the limit, whether that is `least` or `most`, and what else was seen."""

    title: str
    value: float | None
    """None where nothing happened that could be measured: the goal is then not met."""
    limit: float | None
    """None where the value is shown for comparison and nothing is asked of it."""
    kind: Literal["least", "most"] = "least"
    seen: str = ""

    @property
    def met(self) -> bool:
        """True where what came out is within the limit."""
        if self.value is None or self.limit is None:
            return False
        return self.value >= self.limit if self.kind == "least" else self.value <= self.limit

    @property
    def verdict(self) -> str:
        """A word for what came of it; none where nothing was asked."""
        return "" if self.limit is None else verdict(None if self.value is None else self.met)

    def row(self, form: str = ".3g") -> list[str]:
        """A row of a table, the value in a form."""
        value = UNKNOWN if self.value is None else f"{self.value:{form}}"
        limit = UNKNOWN if self.limit is None else f"at {self.kind} {self.limit:g}"
        return [self.title, value, limit, self.verdict, self.seen]


def value_table(goals: Iterable[Goal], form: str = ".3f") -> list[str]:
    """Return a table of what came out, for pages: without limits."""
    cells = (goal.row(form) for goal in goals)
    return table(["", "value", "seen"], [(title, value, seen) for title, value, *_, seen in cells])


def goal_table(goals: Iterable[Goal], seen: str = "", form: str = ".3f") -> list[str]:
    """A table of goals; with a heading for what else was seen, that too."""
    columns = 5 if seen else 4
    return table(["", "value", "limit", "", seen][:columns], [goal.row(form)[:columns] for goal in goals])
