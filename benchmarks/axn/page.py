"""docs/axn.md: goals, tables and plots, and further rows as they are kept."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import pages
from benchmarks.axn.findings import Findings, Gate
from benchmarks.axn.rows import ADACUR, ADACUR_BOTH, FIRST, NDCG, RIDGE, RIDGE_BOTH, RNR, RNR_BOTH, Found, named
from benchmarks.goals import Goal, lines
from benchmarks.tables import table

DEEP, TEN, ONE = named(100, 500), named(10, 100), named(1, 100)
PLOTS = {
    "calls": ("calls", "calls of the cross-encoder", "Top-100 of its own best", "linear"),
    "calls10": ("calls10", "calls of the cross-encoder", "Top-10 of its own best", "linear"),
    "rounds": ("rounds", "rounds", DEEP, "log"),
    "λ": ("lambda", "λ, share of the base's query vector", DEEP, "linear"),
    "λ1": ("lambda_top1", "λ, share of the base's query vector", ONE, "linear"),
    "μ": ("mu", "μ, weight against the residual", DEEP, "log"),
    "offline": ("offline", "calls made ahead", f"{DEEP}, ridge (ADACUR: its own fit)", "log"),
}
"""Plot -> name of its file, labels of its axes, scale of the first."""
TIMED = {
    "rounds": "a query, 100 calls in 5 rounds, less reading",
    "once": "a query, 100 calls at once, less reading",
    "read_rounds": "reading 5 times 20 pairs",
    "read_once": "reading 100 pairs",
}


def write_page(found: Findings, docs: Path) -> str:
    """Write the page and its plots; returns the page."""
    seconds = {title: found.timing[name] for name, title in TIMED.items()}
    titled = [
        ("Goals", lines(goals_of(found), "paired difference, points")),
        ("Downstream: re-ranking the first hundred for all 300 test queries", _gate(found.gate)),
        ("The cross-encoder alone", _rows(found.alone, found.documents)),
        (f"Beside the base: score + {found.weight:g} · base", _rows(found.beside, found.documents)),
        ("Inside visited leaves", _leaves(found)),
        ("Another black box: BM25 as the scorer", _values(TEN, found.black_box, ".3f")),
        ("Seconds", _values("seconds", seconds | found.steps, ".3g")),
        ("Plots", [_plot(name, rows, docs / "images") for name, rows in found.curves.items()]),
    ]
    told = [*pages.prose("axn/preface.md"), *pages.sections(titled), *pages.prose("axn/further.md")]
    return pages.write(docs, "axn.md", told)


def _values(head: str, values: Mapping[str, float], form: str) -> list[str]:
    return table(["", head], [(name, f"{value:{form}}") for name, value in values.items()])


def _rows(found: Sequence[Found], documents: int) -> list[str]:
    controls = {row.first: next(own for own in found if own.row.name == row.name) for row in (RNR, RNR_BOTH)}
    over = [f"{TEN} over re-ranking", f"{DEEP} over re-ranking, points"]
    head = ["", ONE, TEN, DEEP, *over, f"{NDCG}, 100 calls", f"{NDCG}, 500 calls", "calls ahead"]
    rows = []
    for own in found:
        ahead, base = own.row.calls(documents), controls["both" if own.row.first == "both" else "base"]
        cells = [f"{own.mean(measure):.3f}" for measure in (ONE, TEN, DEEP)]
        cells += ["" if own is base else own.over(base, measure).shown for measure in (TEN, DEEP)]
        cells += [f"{own.mean(f'{NDCG}@{calls}'):.3f}" for calls in (100, 500)]
        rows.append([own.row.name, *cells, f"{ahead:,}" if ahead else ""])
    return table(head, rows)


def _gate(gate: Gate) -> list[str]:
    names = list(gate.means["all"])
    rows = [[group, *(f"{gate.means[group][name]:.3f}" for name in names)] for group in gate.means]
    told = [
        f"{title} over the base, points: "
        + "; ".join(f"{group} {interval.shown}" for group, interval in intervals.items())
        + "."
        for title, intervals in (("Beside the base", gate.over), ("Alone", gate.alone))
    ]
    return [*table(["queries", *names], rows), "", *told]


def _leaves(found: Findings) -> list[str]:
    rows = []
    for name, own in found.leaves.items():
        if "all" in own:
            rows.append([f"scifact: {name}", f"{own['visited']:.1%}", f"{own['all']:.3f}", f"{own['leaves']:.3f}"])
    other = found.leaves.get("acl_title2abs", {})
    for name, value in other.items():
        if "Top" in name:
            rows.append([f"acl_title2abs: {name}", f"{other['visited']:.1%}", "", f"{value:.3f}"])
    return table([TEN, "documents in visited leaves", "over all documents", "in visited leaves"], rows)


def _ratio(title: str, ours: Found, theirs: Found, measure: str, least: float) -> Goal:
    return Goal(title, ours.mean(measure) / theirs.mean(measure), least, seen=ours.over(theirs, measure).shown)


def _share(title: str, ours: Found, theirs: Found, measure: str) -> Goal:
    gained = (ours.mean(measure) - theirs.mean(measure)) / (1 - theirs.mean(measure))
    return Goal(title, gained, 0.3, seen=ours.over(theirs, measure).shown)


def _points(title: str, ours: Found, theirs: Found, measure: str) -> Goal:
    """Points of what a row misses that another finds; a goal of three tenths of them."""
    missed, gained = 100 * (1 - theirs.mean(measure)), ours.over(theirs, measure)
    title = f"{title} of the {missed:.1f} that re-ranking misses"
    return Goal(title, round(gained.value, 1), round(0.3 * missed, 1), seen=gained.shown)


def goals_of(found: Findings) -> Iterator[Goal]:
    """All goals, in the order of what was asked."""
    alone, beside = ({own.row.name: own for own in rows} for rows in (found.alone, found.beside))
    for group, interval in found.gate.over.items():
        title = f"gate, {group}: the base's first 100 re-ranked beside the base, {NDCG} over the base, points"
        yield Goal(title, interval.value, 0, seen=interval.shown)
    title = f"stretch: the cross-encoder alone over the base, {NDCG}, points"
    given = found.gate.alone["all"]
    yield Goal(f"{title}; trained on SciFact's pairs alone", given.value, 0, seen=given.shown)
    yield Goal(f"{title}; with all pairs of acl_title2abs", None, 0)
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
            yield Goal(title, interval.value, -2, seen=interval.shown)
        yield _ratio(f"{what}, {DEEP}: inductive over base vectors, both ridge", inductive, ridge, DEEP, 1)
        control, ridge, biased, _ = (beside[row.name] for row in rows)
        what = f"beside the base, first round {first}"
        yield _points(f"{what}, {DEEP}: points that ridge finds", ridge, control, DEEP)
        yield _points(f"{what}, {DEEP}: points that ridge + bias of 2 queries finds", biased, control, DEEP)
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
        yield Goal(f"acl_title2abs, visited leaves, {name}", other_leaves.get(name), 0.95)
    time = found.timing
    more = time["rounds"] - time["once"] + max(0.0, time["read_rounds"] - time["read_once"])
    share = 1 - more / (time["rounds"] + time["read_rounds"])
    yield Goal("rounds: share of a query's time that is not theirs (100 calls, 5 rounds)", share, 0.98)


def _plot(name: str, rows: dict[str, list[tuple[float, float]]], images: Path) -> str:
    file, across, up, scale = PLOTS[name]
    path, named = images / f"axn_{file}.png", {row: tuple(zip(*points, strict=True)) for row, points in rows.items()}
    with pages.plot(path) as (axes,):
        pages.curves(axes, named, fontsize=7, xlabel=across, ylabel=up, xscale=scale)
    return pages.link(f"{up} against {across}", path)
