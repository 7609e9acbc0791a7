"""docs/hce.md: goals, and tables of every collection, each row with its paired interval to a control."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from benchmarks import goals, pages
from benchmarks.hce import plots, visited
from benchmarks.hce.bench import Row
from benchmarks.hce.findings import Comparison, Findings
from benchmarks.hce.goals import goals_of
from benchmarks.hce.rows import PLAIN, UNTOUCHED
from benchmarks.statistics import compared
from benchmarks.tables import table

USUAL = ("nDCG@10", "R@100")
MEASURES = {"acl_title2abs": ("R@1", "R@100"), "oewn_examples": ("nDCG@10", "R@1", "R@100")}
FIGURE_4 = ("R@1", "R@5", "R@10", "R@100")


def write_page(found: Sequence[Findings], docs: Path) -> str:
    """Write hce.md and its plots into a folder; returns the page."""
    met = goals.lines([goal for own in found for goal in goals_of(own)])
    page = [*pages.prose("hce/preface.md"), "", "## Goals", "", *met]
    for own in found:
        page += ["", f"## {own.name}", "", own.about, *sections(own, docs / "images")]
    return pages.write(docs, "hce.md", page)


def sections(found: Findings, images: Path) -> list[str]:
    """Tables and plots of one collection."""
    titled: list[tuple[str, list[str]]] = []
    if found.judged is not None:
        titled.append(("Trained by judged pairs", tables(found.judged, PLAIN, MEASURES.get(found.name, USUAL))))
    if found.alone is not None:
        titled.append(("Trained by documents alone", tables(found.alone, UNTOUCHED)))
    if found.layered is not None:
        titled.append(("The last layer trained", tables(found.layered, UNTOUCHED)))
    if found.branchings is not None:
        drawn = plots.branchings(found.branchings, images / "hce_branching.png")
        titled.append(("Branching", [*lines(found.branchings, PLAIN, FIGURE_4), "", drawn]))
    if found.visits is not None:
        drawn = plots.visits(found.visits, images / "hce_visited.png")
        titled.append(("Documents visited", [*visited.lines(found.visits), "", drawn]))
    return pages.sections(titled, 3)


def tables(told: Comparison, control: Row, measures: Sequence[str] = USUAL) -> list[str]:
    """A table of all queries, and one of those with new answers."""
    found: list[str] = []
    seeds = f"{told.seeds} seeds" if told.seeds > 1 else "one seed"
    for group, own_Q in told.groups.items():
        found += [f"**{group}** ({own_Q.sum()} queries, {seeds})", ""]
        found += [*lines(told, control, measures, group), ""]
    return found[:-1]


def lines(told: Comparison, control: Row, measures: Sequence[str], group: str = "all") -> list[str]:
    """A table of rows: each measure, and points above the control with their interval."""
    head = ["", *(cell for measure in measures for cell in (measure, f"over {control.name.partition(',')[0]}"))]
    own_Q, rows = told.groups[group], []
    for row in told.rows:
        other = None if row.name == control.name else told.found[control.name]
        cells = [
            compared(told.found[row.name][measure][:, own_Q], None if other is None else other[measure][:, own_Q])
            for measure in measures
        ]
        rows.append([row.name, *chain(*cells)])
    return table(head, rows)
