"""Make tables of a report, such as a measure at shares of documents visited, and what recall costs."""

from collections.abc import Sequence

import numpy as np

from rayhier.evaluate.curve import Point, reach, read
from rayhier.evaluate.files import cell
from rayhier.evaluate.report import ENCODERS, Report
from rayhier.evaluate.significance import Difference

REACHED = (0.9, 0.95, 0.98)
EXACT = {"faiss_ivf": "exact"}
"""Name of a baseline -> the exact search that it is compared with, if that is not the trained encoder's search."""


def table(report: Report, visited: Sequence[float], measure: str) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: a measure of each system at shares visited, and the index minus each baseline."""
    header = [measure, *(f"{share:.0%} visited" for share in visited)]
    rows = []
    for name in report.curves:
        points = report.points(name)
        rows.append([report.label(name), *(cell(read(points, share, measure)) for share in visited)])
        by_share = {row.visited: row for row in report.between(report.router, name, measure)}
        if by_share:
            shown = [by_share.get(share) for share in visited]
            rows.append(["  this index minus it", *("" if row is None else _difference(row) for row in shown)])
            rows.append(["  95% interval", *("" if row is None else _interval(row) for row in shown)])
    for name, values in report.systems.items():
        if name not in report.curves and values.calls is None:
            cells = [cell(values.measures[measure]) if share == values.visited else "" for share in visited]
            rows.append([report.label(name), *cells])
    return header, rows


def served_path(report: Report, measures: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: measures and costs of the index by vectors, with BM25, and re-ranked."""
    header = ["as it is served", *measures, "visited", "calls", "ms per query"]
    named = [name for name, values in report.systems.items() if values.calls is not None]
    rows = []
    for name in [report.router, *named] if named else []:
        values = report.systems[name]
        costs = [f"{values.calls or 0:.0f}", "" if values.ms is None else f"{values.ms:.0f}"]
        rows.append(
            [report.label(name), *(cell(values.measures[m]) for m in measures), f"{values.visited:.1%}", *costs]
        )
    return header, rows


def encoders(report: Report, measures: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: searches before and after training for each group of queries, and the difference."""
    rows = []
    for group in report.groups:
        encoders = report.encoders[group]
        title = f"{group} ({encoders.queries:,} queries)"
        for before, after in dict.fromkeys((report.trained, ENCODERS)):
            rows += [
                [f"{title}: {report.label(name)}", *(cell(encoders.systems[name][m]) for m in measures)]
                for name in (before, after)
            ]
            changes = [change for m in measures for change in report.between(after, before, m, group)]
            rows.append(["  difference", *(_difference(row) for row in changes)])
            rows.append(["  95% interval", *(_interval(row) for row in changes)])
    return ["before and after training", *measures], rows


def leaf_groups(report: Report, measures: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: leaves that many, few or no queries visit first, and measures of these queries."""
    rows = []
    for group, row in report.leaf_groups.items():
        counts = [f"{group}: {row.leaves:g} leaves", f"{row.rows:.1%}", f"{row.queries:g}"]
        rows.append([*counts, *(cell(row.measures[m]) if m in row.measures else "" for m in measures)])
    return ["leaves", "rows", "queries", *measures], rows


def _difference(row: Difference) -> str:
    return f"{row.difference:+.3f}{'' if row.doubt else '*'}"


def _interval(row: Difference) -> str:
    return f"{row.low:+.3f}…{row.high:+.3f}"


def reached(report: Report, measure: str) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: documents visited, cost and time per query for shares of exact search's measure."""
    header = [f"visited (cost, time) for … of exact {measure}", *(f"{share:.0%}" for share in REACHED)]
    rows = []
    for name in report.curves:
        exact = report.systems.get(EXACT.get(name, "exact_same_encoder"))
        if exact is not None:
            points = report.points(name)
            goals = [share * exact.measures[measure] for share in REACHED]
            rows.append([report.label(name), *(_price(points, measure, goal) for goal in goals)])
    return header, rows


def _price(points: Sequence[Point], measure: str, goal: float) -> str:
    visited, cost = (reach(points, measure, goal, axis) for axis in ("visited_mean", "cost_mean"))
    if np.isnan(visited):
        return "never"
    if any(point.microseconds is None for point in points):
        return f"{visited:.2%} ({cost:.1%})"
    return f"{visited:.2%} ({cost:.1%}, {reach(points, measure, goal, 'microseconds') / 1000:.2f} ms)"
