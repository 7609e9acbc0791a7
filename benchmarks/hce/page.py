"""docs/hce.md: goals that were set before anything was measured, and tables and plots of every collection."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks import goals, pages
from benchmarks.goals import Goal
from benchmarks.hce.bench import Comparison, Row
from benchmarks.hce.rows import PLAIN, UNTOUCHED, J, S, U
from benchmarks.hce.twins import Twins
from benchmarks.hce.twins import lines as twins_lines
from benchmarks.hce.visited import PAIRS, PLAIN_LEARNED, PLAIN_LISTS, SHARES, Visits
from benchmarks.hce.visited import lines as visited_lines
from benchmarks.pages import curves, link, plot
from benchmarks.statistics import compared
from benchmarks.tables import table

USUAL = ("nDCG@10", "R@100")
MEASURES = {"acl_title2abs": ("R@1", "R@100"), "oewn_examples": ("nDCG@10", "R@1", "R@100")}
FIGURE_4 = ("R@1", "R@5", "R@10", "R@100")


@dataclass(frozen=True)
class Findings:
    """All that is measured on one collection."""

    name: str
    about: str
    told: Mapping[str, Comparison]
    """Rows by how they were trained: judged, alone (by documents alone), layered (the last layer), branchings."""
    visits: Visits | None
    """Recall at documents visited."""
    twins: Twins | None = None
    """Queries with a near-twin among train queries, and the others."""


TITLES = {
    "judged": ("Trained by judged pairs", PLAIN),
    "alone": ("Trained by documents alone", UNTOUCHED),
    "layered": ("The last layer trained", UNTOUCHED),
}
"""Kind of rows -> its heading, and the row that they are told from."""


def write_page(found: Sequence[Findings], docs: Path) -> str:
    """Write hce.md and its plots into a folder; returns the page."""
    titled = [("Goals", goals.lines(goal for own in found for goal in goals_of(own)))]
    titled += [(own.name, [own.about, *sections(own, docs / "images")]) for own in found]
    return pages.write(docs, "hce.md", [*pages.prose("hce/preface.md"), *pages.sections(titled)])


def sections(found: Findings, images: Path) -> list[str]:
    """Tables and plots of one collection."""
    titled = [
        (title, tables(found.told[kind], control, MEASURES.get(found.name, USUAL) if kind == "judged" else USUAL))
        for kind, (title, control) in TITLES.items()
        if kind in found.told
    ]
    if found.twins is not None:
        titled.append(("Near-twins of train queries", twins_lines(found.twins)))
    if "branchings" in found.told:
        drawn = _branchings(found.told["branchings"], images / "hce_branching.png")
        titled.append(("Branching", [*lines(found.told["branchings"], PLAIN, FIGURE_4), "", drawn]))
    if found.visits is not None:
        drawn = _visits(found.visits, images / "hce_visited.png")
        titled.append(("Documents visited", [*visited_lines(found.visits), "", drawn]))
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


NDCG, RECALL = "nDCG@10", "R@100"
PART_OF_GAIN = 80.0
"""Percent of its gain over the untouched encoder that a training should keep where answers are new to it."""


def goals_of(found: Findings) -> Iterator[Goal]:
    """Goals of one collection; none where none was set."""
    match found.name:
        case "scifact":
            yield from scifact(found.told["judged"], found.told["alone"])
        case "cranfield":
            for measure, stretch in ((NDCG, 1.5), (RECALL, 2.0)):
                value = found.told["alone"].difference(U.name, UNTOUCHED.name, measure).value
                yield Goal(f"Cranfield: U over untouched, {measure}, points", value, 1.0)
                yield Goal(f"Cranfield: U over untouched, {measure}, points (the stretch)", value, stretch)
        case "oewn_examples":
            yield from oewn_examples(found)


def scifact(told: Comparison, alone: Comparison) -> Iterator[Goal]:
    """Contrast, S and J where answers are known and where they are new, and U beside the untouched encoder."""
    plain, hce, joint = (row.name for row in (PLAIN, S, J))
    yield Goal("SciFact: contrast, nDCG@10", told.mean(plain, NDCG), 0.795)
    yield Goal("SciFact: contrast, R@100", told.mean(plain, RECALL), 0.945)
    yield Goal("SciFact: S, nDCG@10", told.mean(hce, NDCG), 0.80)
    over = told.difference(hce, plain, NDCG)
    yield Goal("SciFact: S over contrast, nDCG@10, lower bound, points", over.low, -1.0)
    yield Goal("SciFact: S over contrast, nDCG@10, points (the stretch)", over.value, 0.5)
    yield Goal("SciFact: J over S, nDCG@10, points", told.difference(joint, hce, NDCG).value, -0.5)
    for measure, least in ((NDCG, -1.0), (RECALL, -1.5)):
        low = alone.difference(U.name, UNTOUCHED.name, measure).low
        yield Goal(f"SciFact: U over untouched, {measure}, lower bound", low, least)
    gains = {row: told.difference(row, UNTOUCHED.name, NDCG).value for row in (plain, hce, joint)}
    for row, gain in gains.items():
        name = row.partition(",")[0]
        for measure in (NDCG, RECALL):
            value = told.difference(row, UNTOUCHED.name, measure, "new answers").value
            yield Goal(f"SciFact, new answers: {name} over untouched, {measure}, points", value, -0.5)
        part = 100 * gain / max(gains.values())
        yield Goal(f"SciFact: {name}, gain in nDCG@10 on all, % of the greatest", part, PART_OF_GAIN)


def oewn_examples(found: Findings) -> Iterator[Goal]:
    """S beside contrast by exact search, and by leaves at shares visited."""
    assert found.visits is not None
    for measure in (NDCG, "R@1"):
        value = found.told["judged"].difference(S.name, PLAIN.name, measure).value
        yield Goal(f"oewn_examples: S over contrast, {measure}, points", value, -0.3)
    for pair, asked, end in (
        (PAIRS[0], -0.5, " visited, points"),
        (PAIRS[1], -0.5, " visited, points"),
        (PAIRS[1], 0.5, ", points (the stretch)"),
    ):
        for share, own in zip(SHARES, found.visits.points(*pair), strict=True):
            yield Goal(f"oewn_examples: {' over '.join(pair)}, R@100 at {share:.0%}{end}", own.value, asked)


def _branchings(told: Comparison, path: Path) -> str:
    """Points above contrast at some depths against the tree's branching (the paper's Figure 4); a link to the plot."""
    shown = {row.name: row.train["tree"]["branching"] for row in told.rows if row.train and "tree" in row.train}
    with plot(path, 4, sharey=True) as panels:
        for axes, measure in zip(panels, FIGURE_4, strict=True):
            over = [told.difference(name, PLAIN.name, measure) for name in shown]
            value_B, low_B, high_B = np.array([(own.value, own.low, own.high) for own in over]).T
            series = list(shown.values()), value_B, [value_B - low_B, high_B - value_B]
            curves(axes, {"": series}, fontsize=0, xbase=2, title=measure, xlabel="children of a node, b")
            axes.axhline(0, color="0.5", linestyle="--")
        panels[0].set_ylabel("points above contrast")
    return link("Points above contrast against branching", path)


def _visits(found: Visits, path: Path) -> str:
    """Recall against documents visited of every system; a link to the plot."""
    with plot(path) as (axes,):
        for name, curve in found.curves.items():
            label = f"{name.replace('`', '')}, {found.leaves[name]:,} leaves"
            form = "--" if name in (PLAIN_LEARNED, PLAIN_LISTS) else "-"
            curves(axes, {label: (100 * curve.visited_PQ.mean(axis=1), curve.recall_PQ.mean(axis=1))}, form)
        axes.set(xscale="log", xlabel="documents visited, %", ylabel="R@100")
        axes.grid(alpha=0.3, which="both")
    return link("Recall against documents visited", path)
