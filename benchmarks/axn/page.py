"""docs/axn.md: goals, tables and plots."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.axn.findings import (
    ADACUR,
    ADACUR_BOTH,
    BIASED,
    BIASED_BOTH,
    INDUCTIVE,
    INDUCTIVE_BOTH,
    RIDGE,
    RIDGE_BOTH,
    RNR,
    RNR_BOTH,
    Findings,
    Gate,
)
from benchmarks.axn.measured import NDCG, Found, named
from benchmarks.tables import table
from rayhier.evaluate.significance import Interval

PREFACE = Path(__file__).parent / "preface.md"
DEEP, TEN, ONE = named(100, 500), named(10, 100), named(1, 100)
LABELS = {
    "calls": ("calls of the cross-encoder", "Top-100 of its own best"),
    "calls10": ("calls of the cross-encoder", "Top-10 of its own best"),
    "rounds": ("rounds", f"{DEEP}"),
    "λ": ("λ, share of the base's query vector", f"{DEEP}"),
    "λ1": ("λ, share of the base's query vector", f"{ONE}"),
    "μ": ("μ, weight against the residual", f"{DEEP}"),
    "offline": ("calls made ahead", f"{DEEP}, ridge (ADACUR: its own fit)"),
}
FIRST = {"base": (RNR, RIDGE, BIASED, INDUCTIVE), "base + BM25": (RNR_BOTH, RIDGE_BOTH, BIASED_BOTH, INDUCTIVE_BOTH)}
"""First round -> its re-ranking, ridge, ridge with a bias, ridge over inductive vectors."""
LOGARITHMIC = ("μ", "offline", "rounds")


def write_page(found: Findings, docs: Path) -> str:
    """Write the page and its plots; returns the page."""
    links = [_plot(name, lines, docs / "images") for name, lines in found.curves.items()]
    lines = [
        PREFACE.read_text().rstrip(),
        "",
        "## Goals",
        "",
        *_goals(found),
        "",
        "## Downstream: re-ranking the first hundred for all 300 test queries",
        "",
        *_gate(found.gate),
        "",
        "## The cross-encoder alone",
        "",
        *_rows(found.alone, found.documents),
        "",
        f"## Beside the base: score + {found.weight:g} · base",
        "",
        *_rows(found.beside, found.documents),
        "",
        "## Inside visited leaves",
        "",
        *_leaves(found),
        "",
        "## Another black box: BM25 as the scorer",
        "",
        *table(["", TEN], [(name, f"{value:.3f}") for name, value in found.black_box.items()]),
        "",
        "## Seconds",
        "",
        *table(["", "seconds"], [(name, f"{value:.3g}") for name, value in found.seconds.items()]),
        "",
        "## Plots",
        "",
        *links,
        "",
    ]
    text = "\n".join(lines)
    (docs / "axn.md").write_text(text)
    return text


def _rows(found: Sequence[Found], documents: int) -> list[str]:
    controls = {row.first: next(own for own in found if own.row.name == row.name) for row in (RNR, RNR_BOTH)}
    head = [
        "",
        ONE,
        TEN,
        DEEP,
        f"{TEN} over re-ranking",
        f"{DEEP} over re-ranking, points",
        f"{NDCG}, 100 calls",
        f"{NDCG}, 500 calls",
        "calls ahead",
    ]
    lines = []
    for own in found:
        ahead = own.row.calls(documents)
        cells = [f"{own.mean(measure):.3f}" for measure in (ONE, TEN, DEEP)]
        base = controls["both" if own.row.first == "both" else "base"]
        over = ["" if own is base else shown(own.over(base, measure)) for measure in (TEN, DEEP)]
        last = [f"{own.mean(f'{NDCG}@{calls}'):.3f}" for calls in (100, 500)]
        lines.append([own.row.name, *cells, *over, *last, f"{ahead:,}" if ahead else ""])
    return table(head, lines)


def _gate(gate: Gate) -> list[str]:
    names = list(gate.means["all"])
    lines = [[group, *(f"{gate.means[group][name]:.3f}" for name in names)] for group in gate.means]
    told = [
        f"{title} over the base, points: "
        + "; ".join(f"{group} {shown(interval)}" for group, interval in intervals.items())
        + "."
        for title, intervals in (("Beside the base", gate.over), ("Alone", gate.alone))
    ]
    return [*table(["queries", *names], lines), "", *told]


def _leaves(found: Findings) -> list[str]:
    lines = [
        [f"scifact: {name}", f"{own['visited']:.1%}", f"{own['all']:.3f}", f"{own['leaves']:.3f}"]
        for name, own in found.leaves.items()
        if "all" in own
    ]
    other = found.leaves.get("acl_title2abs", {})
    more = [
        [f"acl_title2abs: {name}", f"{other['visited']:.1%}", "", f"{value:.3f}"]
        for name, value in other.items()
        if "Top" in name
    ]
    return table(
        ["Top-10@100", "documents in visited leaves", "over all documents", "in visited leaves"], [*lines, *more]
    )


def shown(interval: Interval) -> str:
    """An interval in points."""
    return f"{100 * interval.difference:+.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def _goals(found: Findings) -> list[str]:
    rows = [
        (goal.title, "-" if goal.missing else f"{goal.value:.3f}", f"{goal.least:g}", goal.word, goal.interval)
        for goal in goals(found)
    ]
    return table(["", "value", "at least", "", "paired difference, points"], rows)


@dataclass(frozen=True)
class Goal:
    """What was asked, what came out, and the least that was asked."""

    title: str
    value: float
    least: float
    interval: str = ""
    """The difference that the value follows from, with its 95% interval."""

    @property
    def missing(self) -> bool:
        """Whether it was not measured."""
        return math.isnan(self.value)

    @property
    def word(self) -> str:
        """What came of it."""
        return "not measured" if self.missing else "met" if self.value >= self.least else "MISSED"


def _ratio(title: str, ours: Found, theirs: Found, measure: str, least: float) -> Goal:
    return Goal(title, ours.mean(measure) / theirs.mean(measure), least, shown(ours.over(theirs, measure)))


def _share(title: str, ours: Found, theirs: Found, measure: str) -> Goal:
    gained = (ours.mean(measure) - theirs.mean(measure)) / (1 - theirs.mean(measure))
    return Goal(title, gained, 0.3, shown(ours.over(theirs, measure)))


def goals(found: Findings) -> Iterator[Goal]:
    """All goals, in the order of what was asked."""
    alone, beside = ({own.row.name: own for own in rows} for rows in (found.alone, found.beside))
    for group, interval in found.gate.over.items():
        title = f"gate, {group}: the base's first 100 re-ranked beside the base, {NDCG} over the base, points"
        yield Goal(title, 100 * interval.difference, 0, shown(interval))
    title = f"stretch: the cross-encoder alone over the base, {NDCG}, points"
    given = found.gate.alone["all"]
    yield Goal(f"{title}; trained on SciFact's pairs alone", 100 * given.difference, 0, shown(given))
    yield Goal(f"{title}; with all pairs of acl_title2abs", math.nan, 0)
    for first, rows in FIRST.items():
        control, ridge, biased, inductive = (alone[row.name] for row in rows)
        what = f"alone, first round {first}"
        yield _ratio(f"{what}, {DEEP}: ridge over re-ranking", ridge, control, DEEP, 1.15)
        yield _share(f"{what}, {DEEP}: share of what re-ranking misses that ridge finds", ridge, control, DEEP)
        yield _ratio(f"{what}, {DEEP}: ridge + bias of 2 queries over re-ranking", biased, control, DEEP, 1.3)
        for name, own in (("ridge", ridge), ("ridge + bias of 2 queries", biased)):
            yield _ratio(f"{what}, {TEN}: {name} over re-ranking", own, control, TEN, 1.05)
            interval = own.over(control, ONE)
            title = f"{what}, {ONE}: {name} less re-ranking, points"
            yield Goal(title, 100 * interval.difference, -2, shown(interval))
        yield _ratio(f"{what}, {DEEP}: inductive over base vectors, both ridge", inductive, ridge, DEEP, 1)
        control, ridge, biased, _ = (beside[row.name] for row in rows)
        what = f"beside the base, first round {first}"
        yield _share(f"{what}, {DEEP}: share of what re-ranking misses that ridge finds", ridge, control, DEEP)
        title = f"{what}, {DEEP}: share of it that ridge + bias of 2 queries finds"
        yield _share(title, biased, control, DEEP)
    for (first, measure), name in found.factors.items():
        adacur, ours = (ADACUR if first == "base" else ADACUR_BOTH), alone[name]
        ahead = ours.row.calls(found.documents) / adacur.calls(found.documents)
        title = f"alone, {measure}: {name} over {adacur.name}, for {ahead:.3f} of its calls ahead"
        yield _ratio(title, ours, alone[adacur.name], measure, 0.95)
    for name, one in found.leaves.items():
        if "all" in one and not name.startswith("re-rank"):
            title = f"scifact, visited leaves over all documents, {TEN}: {name}"
            yield Goal(title, one["leaves"] / one["all"], 0.95)
    other_leaves = found.leaves.get("acl_title2abs", {})
    for row in (RIDGE, RIDGE_BOTH):
        name = f"{row.name}: {ONE}"
        yield Goal(f"acl_title2abs, visited leaves, {name}", other_leaves.get(name, math.nan), 0.95)
    share = 1 - found.rounds[0].share
    yield Goal("rounds: share of a query's time that is not theirs (100 calls, 5 rounds)", share, 0.98)


def _plot(name: str, lines: dict[str, list[tuple[float, float]]], images: Path) -> str:
    figure = Figure(figsize=(7.0, 3.6), layout="constrained")
    axes = figure.subplots()
    for row, points in lines.items():
        axes.plot(*zip(*points, strict=True), "o-", markersize=3, label=row)
    across, up = LABELS[name]
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    if name in LOGARITHMIC:
        axes.set_xscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    images.mkdir(parents=True, exist_ok=True)
    file = f"axn_{FILES.get(name, name)}.png"
    figure.savefig(images / file, dpi=110)
    return f"![{up} against {across}](images/{file})"


FILES = {"λ": "lambda", "λ1": "lambda_top1", "μ": "mu"}
"""Names of files of plots whose own name is not plain."""
