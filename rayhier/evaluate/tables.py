"""Tables of a report: recall at shares visited with differences and intervals, and the price of recall."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rayhier.evaluate.curve import Point, reach, read

DIGITS = 3
REACHED = (0.9, 0.95, 0.98)
"""Shares of what an exact search finds."""
EXACT = {"faiss_ivf": "exact"}
"""Whose exact search a system is held against, where it is not the trained encoder's."""


def table(report: dict[str, Any], visited: Sequence[float], measure: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows: a measure of each system at fractions of the documents visited, interpolated.

    Below each baseline the router's difference from it and that difference's interval; * where it excludes 0.
    """
    header = [measure, *(f"{share:.0%} visited" for share in visited)]
    rows = []
    for name, curve in report["curves"].items():
        points = [point_of(row, measure) for row in curve]
        rows.append([label(report, name), *(cell(read(points, share, measure)) for share in visited)])
        found = {row["visited"]: row for row in differences(report, report["router"], name, measure)}
        if found:
            shown = [found.get(share) for share in visited]
            rows.append([f"  {report['router']} minus it", *("" if row is None else _difference(row) for row in shown)])
            rows.append(["  95% interval", *("" if row is None else _interval(row) for row in shown)])
    for name, values in report["systems"].items():
        if name not in report["curves"]:
            cells = [cell(values[measure]) if share == values["visited"] else "" for share in visited]
            rows.append([label(report, name), *cells])
    return header, rows


def differences(report: dict[str, Any], system: str, baseline: str, measure: str) -> list[dict[str, Any]]:
    """What report.json says of two systems."""
    asked = (system, baseline, measure)
    return [row for row in report["significance"] if (row["system"], row["baseline"], row["measure"]) == asked]


def said(row: dict[str, Any]) -> str:
    """A difference in one line."""
    return f"{_difference(row)} (95% interval {_interval(row)})"


def _difference(row: dict[str, Any]) -> str:
    return f"{row['difference']:+.3f}{'' if row['low'] <= 0 <= row['high'] else '*'}"


def _interval(row: dict[str, Any]) -> str:
    return f"{row['low']:+.3f}…{row['high']:+.3f}"


def point_of(row: dict[str, Any], measure: str) -> Point:
    """A row of report.json's curves as a point."""
    return Point(
        row["beam"],
        row["visited_mean"],
        row["visited_p95"],
        row["cost_mean"],
        row["leaves_mean"],
        {measure: row[measure]},
    )


def label(report: dict[str, Any], name: str) -> str:
    """A system's name and how many leaves or lists it has."""
    if name == report["router"]:
        return f"{name} ({report['balance']['leaves']:.0f} leaves)"
    return f"{name} ({report['lists'][name]} lists)" if name in report["lists"] else name


def reached(report: dict[str, Any], measure: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows: what each system must visit for 90, 95 and 98% of an exact search's measure; cost in brackets.

    Both are shares of the corpus. No rows where no exact search was measured.
    """
    header = [f"visited (cost) for … of exact {measure}", *(f"{share:.0%}" for share in REACHED)]
    rows = []
    for name, curve in report["curves"].items():
        exact = report["systems"].get(EXACT.get(name, "exact_same_encoder"))
        if exact is not None:
            points = [point_of(row, measure) for row in curve]
            goals = [share * exact[measure] for share in REACHED]
            rows.append([label(report, name), *(_price(points, measure, goal) for goal in goals)])
    return header, rows


def _price(points: Sequence[Point], measure: str, goal: float) -> str:
    visited, cost = (reach(points, measure, goal, axis) for axis in ("visited_mean", "cost_mean"))
    return "never" if np.isnan(visited) else f"{visited:.2%} ({cost:.1%})"


def cell(value: float) -> str:
    """A value, nothing where there is none."""
    return "" if np.isnan(value) else f"{value:.{DIGITS}f}"
