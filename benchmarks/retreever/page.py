"""docs/retreever.md: goals, and tables and plots of every collection."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from benchmarks import pages
from benchmarks.goals import lines
from benchmarks.retreever import plots
from benchmarks.retreever.bench import MEASURES
from benchmarks.retreever.findings import Findings, Sized
from benchmarks.retreever.goals import goals_of
from benchmarks.retreever.leaves import SHARES, recalls
from benchmarks.retreever.rows import (
    LINEAR,
    MLP,
    MRL,
    NO_TREE,
    SCHEDULES,
    SHIPPED,
    TRAINED,
    UNTOUCHED,
)
from benchmarks.retreever.speed import Speeds
from benchmarks.statistics import Curve, compared
from benchmarks.tables import UNKNOWN, mean, table

SHOWN = (4, 8, 16, 32, 64, 128, 256, 1024)


def write_page(found: Sequence[Findings], docs: Path) -> str:
    """Write retreever.md and its plots into a folder; returns the page."""
    goals = [replace(goal, title=f"{own.name}: {goal.title}") for own in found for goal in goals_of(own)]
    page = [*pages.prose("retreever/preface.md"), "", "## Goals", "", *lines(goals)]
    for own in found:
        page += ["", f"## {own.name}", "", own.about, *sections(own, docs / "images")]
    return pages.write(docs, "retreever.md", page)


def sections(found: Findings, images: Path) -> list[str]:
    """Tables and plots of one collection."""
    told, name = found.told, found.name
    compared = [UNTOUCHED.name, TRAINED.name, LINEAR.name, MRL.name, NO_TREE.name, SHIPPED.name, MLP.name]
    schedules = [row for row in SCHEDULES if row in told.found]
    sized = [
        plots.sizes(told, compared, ("R@10", "nDCG@10"), images / f"retreever_sizes_{name}.png"),
        plots.sizes(told, schedules, ("R@10", "R@100"), images / f"retreever_schedules_{name}.png"),
    ]
    alike = plots.similarities(found.similarities, images / f"retreever_ancestors_{name}.png")
    titled = [
        ("All numbers", whole(told)),
        ("Few numbers", [*few(told), "", sized[0], "", sized[1]]),
        ("Leaves", [*leaves(found), "", *curves(found.curves)]),
        ("Ancestors", [*ancestors(found), "", alike]),
        ("A level finished by vectors", shortlists(found) if found.shortlists else []),
    ]
    if found.times is not None:
        titled.append(("Time", [*times(found.times), "", plots.speeds(found.times, images / "retreever_speed.png")]))
    if found.attending is not None and found.distances is not None:
        apart = plots.distances(found.distances, images / "retreever_distances.png")
        titled.append(("Attention to tokens", [*attending(found.attending), "", apart]))
    return pages.sections(titled, 3)


def whole(told: Sized) -> list[str]:
    """Every row at its largest size, with points over the linear adapter."""
    control, rows = told.found[LINEAR.name][told.full(LINEAR.name)], []
    for name in told.found:
        own = told.found[name][told.full(name)]
        cells = [compared(own[measure], None if name == LINEAR.name else control[measure]) for measure in MEASURES]
        rows.append([name, f"{told.full(name):,}", *chain(*cells)])
    return table(["", "numbers", *chain(*((measure, "over linear") for measure in MEASURES))], rows)


def few(told: Sized) -> list[str]:
    """R@10 and R@100 at every size, and means of 4 to 32 numbers."""
    rows = []
    for name in told.found:
        if len(told.sizes(name)) > 1:
            low = [mean(list(told.coarse(name, measure))) for measure in MEASURES]
            sizes = [
                f"{told.mean(name, size, 'R@10'):.3f} / {told.mean(name, size, 'R@100'):.3f}"
                if size in told.found[name]
                else UNKNOWN
                for size in SHOWN[:-1]
            ]
            rows.append([name, *low, *sizes])
    head = ["", *(f"{measure}, mean of 4 to 32" for measure in MEASURES), *(f"{size}" for size in SHOWN[:-1])]
    return table(head, rows)


def leaves(found: Findings) -> list[str]:
    """The best leaf alone."""
    rows = [
        [
            name,
            *(f"{own[measure].mean():.3f}" for measure in MEASURES),
            f"{own['visited'].mean():.2%}",
            f"{own['ms'][0]:.2f}",
        ]
        for name, own in found.leaves.items()
    ]
    return table(["the best leaf, ranked by vectors", *MEASURES, "visited", "ms a query"], rows)


def curves(found: Mapping[str, Curve]) -> list[str]:
    """R@100 at documents visited."""
    rows = [
        [name, f"{own.exact_Q.mean():.3f}", *(f"{value:.3f}" for value in recalls(own))] for name, own in found.items()
    ]
    return table(["R@100", "exact", *(f"{share:.0%} visited" for share in SHARES)], rows)


def ancestors(found: Findings) -> list[str]:
    """Cosines by depth."""
    depths = range(len(next(iter(found.similarities.values()))["cosine"]))
    rows = [[name, *(f"{value:.3f}" for value in own["cosine"])] for name, own in found.similarities.items()]
    return table(["cosine of two documents, ancestor at depth", *(str(depth) for depth in depths)], rows)


def shortlists(found: Findings) -> list[str]:
    """Measures of shortlists, and parts of the exact ones."""
    exact, rows = found.told.found[TRAINED.name][found.told.full(TRAINED.name)], []
    for name, own in found.shortlists.items():
        cells = [
            f"{own[measure].mean():.3f} ({own[measure].mean() / exact[measure][0].mean():.3f})" for measure in MEASURES
        ]
        rows.append([name, *cells])
    rows.append(["exact", *(f"{exact[measure][0].mean():.3f}" for measure in MEASURES)])
    return table(
        ["64 numbers, documents on the shortlist", *(f"{measure} (part of exact)" for measure in MEASURES)], rows
    )


def times(found: Speeds) -> list[str]:
    """Milliseconds of searches and of whole questions."""
    rows = [[name, f"{found.batched[name]:.3f}", f"{found.alone[name]:.3f}"] for name in found.batched]
    page = table([f"flat search of {found.documents:,} documents, one thread", "ms, batches of 64", "ms, alone"], rows)
    parts = sorted({part for own in found.whole.values() for part in own}, key=["encode", "tree", "search"].index)
    wholes = [
        [name, *(f"{own[part]:.2f}" if part in own else UNKNOWN for part in parts), f"{sum(own.values()):.2f}"]
        for name, own in found.whole.items()
    ]
    return [*page, "", *table(["a whole question, alone, ms", *parts, "all"], wholes)]


def attending(told: Sized) -> list[str]:
    """Attention beside rows that read vectors, with as many steps."""
    rows = []
    for name in told.found:
        cells = [mean(list(told.coarse(name, measure))) for measure in MEASURES]
        cells += [f"{told.mean(name, told.full(name), measure):.3f}" for measure in MEASURES]
        rows.append([name, *cells, f"{told.full(name):,}"])
    head = [*(f"{measure}, 4 to 32" for measure in MEASURES), *(f"{measure}, all" for measure in MEASURES), "numbers"]
    return table(["", *head], rows)
