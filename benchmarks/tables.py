"""Tables and numbers as pages and terminals show them."""

from collections.abc import Iterable, Sequence

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
