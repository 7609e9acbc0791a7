"""docs/axn.md: goals, tables and plots."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.axn.findings import (
    ADACUR,
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
    base = next(own for own in found if own.row.name == RNR.name)
    head = [
        "",
        ONE,
        TEN,
        DEEP,
        f"{DEEP} over {RNR.name}, points",
        f"{NDCG}, 100 calls",
        f"{NDCG}, 500 calls",
        "calls ahead",
    ]
    lines = []
    for own in found:
        ahead = own.row.calls(documents)
        cells = [f"{own.mean(measure):.3f}" for measure in (ONE, TEN, DEEP)]
        over = "" if own is base else shown(own.over(base, DEEP))
        last = [f"{own.mean(f'{NDCG}@{calls}'):.3f}" for calls in (100, 500)]
        lines.append([own.row.name, *cells, over, *last, f"{ahead:,}" if ahead else ""])
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
        (title, f"{value:.3f}", f"{least:g}", "met" if value >= least else "MISSED")
        for title, value, least in goals(found)
        if not math.isnan(value)
    ]
    return table(["", "value", "at least", ""], rows)


def goals(found: Findings) -> Iterator[tuple[str, float, float]]:
    """What was asked: what came out, and the least that was asked."""
    alone, beside = ({own.row.name: own for own in rows} for rows in (found.alone, found.beside))
    for group, interval in found.gate.over.items():
        yield (
            f"gate, {group}: the base's first 100 re-ranked beside the base, {NDCG} over the base, points",
            100 * interval.difference,
            0,
        )
    yield (
        f"gate (the stretch): the cross-encoder alone over the base, {NDCG}, points",
        100 * found.gate.alone["all"].difference,
        0,
    )
    for first, rows in FIRST.items():
        control, ridge, biased, inductive = (alone[row.name] for row in rows)
        what = f"alone, first round {first}"
        yield f"{what}, {DEEP}: ridge over re-ranking", ridge.mean(DEEP) / control.mean(DEEP), 1.15
        yield f"{what}, {DEEP}: share of what re-ranking misses that ridge finds", _gained(ridge, control, DEEP), 0.3
        yield (
            f"{what}, {DEEP}: ridge + bias of 2 queries a document over re-ranking",
            biased.mean(DEEP) / control.mean(DEEP),
            1.3,
        )
        yield f"{what}, {TEN}: ridge over re-ranking", ridge.mean(TEN) / control.mean(TEN), 1.05
        yield f"{what}, {TEN}: ridge + bias of 2 queries over re-ranking", biased.mean(TEN) / control.mean(TEN), 1.05
        yield f"{what}, {ONE}: ridge less re-ranking, points", 100 * (ridge.mean(ONE) - control.mean(ONE)), -2
        yield (
            f"{what}, {DEEP}: inductive vectors over base vectors, both ridge",
            inductive.mean(DEEP) / ridge.mean(DEEP),
            1,
        )
        control, ridge, biased, _ = (beside[row.name] for row in rows)
        what = f"beside the base, first round {first}"
        yield f"{what}, {DEEP}: share of what re-ranking misses that ridge finds", _gained(ridge, control, DEEP), 0.3
        yield (
            f"{what}, {DEEP}: share of it that ridge + bias of 2 queries finds",
            _gained(biased, control, DEEP),
            0.3,
        )
    adacur = alone[ADACUR.name]
    most = ADACUR.calls(found.documents) / 20
    cheap = [one for one in found.alone if 0 < one.row.calls(found.documents) <= most and one.row.vectors != "anchors"]
    for measure in (DEEP, TEN):
        best = max(cheap, key=lambda one: one.mean(measure))
        ahead = f"{best.row.calls(found.documents):,} calls ahead"
        title = f"alone, {measure}: {best.row.name} ({ahead}) over ADACUR-50 ({ADACUR.calls(found.documents):,})"
        yield title, best.mean(measure) / adacur.mean(measure), 0.95
    for name, one in found.leaves.items():
        if "all" in one and not name.startswith(RNR.name):
            yield f"scifact, visited leaves over all documents, Top-10@100: {name}", one["leaves"] / one["all"], 0.95
    other_leaves = found.leaves.get("acl_title2abs", {})
    for row in (RIDGE, RIDGE_BOTH):
        name = f"{row.name}: {ONE}"
        yield f"acl_title2abs, visited leaves, {name}", other_leaves.get(name, math.nan), 0.95
    yield "rounds: time left to reading, of a query's (100 calls, 5 rounds)", 1 - found.rounds[0], 0.98


def _gained(ours: Found, theirs: Found, measure: str) -> float:
    return (ours.mean(measure) - theirs.mean(measure)) / (1 - theirs.mean(measure))


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


FILES = {"λ": "lambda", "μ": "mu"}
"""Names of files of plots whose own name is not plain."""
