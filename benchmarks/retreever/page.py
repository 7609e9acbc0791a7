"""docs/retreever.md: goals, and tables and plots of every collection."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks import pages
from benchmarks.goals import lines
from benchmarks.pages import link, plot
from benchmarks.retreever import rows
from benchmarks.retreever.bench import MEASURES, Sized
from benchmarks.retreever.goals import Findings, goals_of
from benchmarks.retreever.levels import Speeds
from benchmarks.statistics import compared, recall_at
from benchmarks.tables import UNKNOWN, mean, table
from rayhier.arrays import Values

SHOWN = (4, 8, 16, 32, 64, 128, 256)
SHARES = (0.01, 0.02, 0.05, 0.1)


def write_page(found: Sequence[Findings], docs: Path) -> str:
    """Write retreever.md and its plots into a folder; returns the page."""
    goals = [replace(goal, title=f"{own.name}: {goal.title}") for own in found for goal in goals_of(own)]
    titled = [("Goals", lines(goals)), *((own.name, [own.about, *sections(own, docs / "images")]) for own in found)]
    return pages.write(docs, "retreever.md", [*pages.prose("retreever/preface.md"), *pages.sections(titled)])


def sections(found: Findings, images: Path) -> list[str]:
    """Tables and plots of one collection."""
    told, name = found.told, found.name
    shown = (rows.UNTOUCHED, rows.TRAINED, rows.LINEAR, rows.MRL, rows.NO_TREE, rows.SHIPPED, rows.MLP)
    schedules = [row for row in rows.SCHEDULES if row in told.found]
    sized = [
        _plot_sizes(told, [row.name for row in shown], ("R@10", "nDCG@10"), images / f"retreever_sizes_{name}.png"),
        _plot_sizes(told, schedules, ("R@10", "R@100"), images / f"retreever_schedules_{name}.png"),
    ]
    alike = _plot_similarities(found.similarities, images / f"retreever_ancestors_{name}.png")
    titled = [
        ("All numbers", whole(told)),
        ("Few numbers", [*few(told), "", sized[0], "", sized[1]]),
        ("Leaves", leaves(found)),
        ("Ancestors", [*ancestors(found), "", alike]),
        ("A level finished by vectors", shortlists(found) if found.shortlists else []),
    ]
    if found.times is not None:
        titled.append(("Time", [*times(found.times), "", _plot_speeds(found.times, images / "retreever_speed.png")]))
    if found.attending is not None and found.distances is not None:
        apart = _plot_distances(found.distances, images / "retreever_distances.png")
        titled.append(("Attention to tokens", [*attending(found.attending), "", apart]))
    return pages.sections(titled, 3)


def whole(told: Sized) -> list[str]:
    """Every row at its largest size, with points over the linear adapter."""
    control, body = told.found[rows.LINEAR.name][told.full(rows.LINEAR.name)], []
    for name in told.found:
        own = told.found[name][told.full(name)]
        cells = [compared(own[measure], None if name == rows.LINEAR.name else control[measure]) for measure in MEASURES]
        body.append([name, f"{told.full(name):,}", *chain(*cells)])
    return table(["", "numbers", *chain(*((measure, "over linear") for measure in MEASURES))], body)


def few(told: Sized) -> list[str]:
    """R@10 and R@100 at every size, and means of 4 to 32 numbers."""
    body = []
    for name, own in told.found.items():
        if len(own) > 1:
            low = [mean(list(told.coarse(name, measure))) for measure in MEASURES]
            sizes = [
                " / ".join(f"{told.mean(name, size, one):.3f}" for one in ("R@10", "R@100")) if size in own else UNKNOWN
                for size in SHOWN
            ]
            body.append([name, *low, *sizes])
    return table(["", *(f"{measure}, mean of 4 to 32" for measure in MEASURES), *map(str, SHOWN)], body)


def leaves(found: Findings) -> list[str]:
    """The best leaf alone, and R@100 at documents visited."""
    best = [
        [name, *_means(own), f"{own['visited'].mean():.2%}", f"{own['ms'][0]:.2f}"]
        for name, own in found.leaves.items()
    ]
    visited = [
        [name, f"{own.exact_Q.mean():.3f}", *(f"{value:.3f}" for value in recall_at(own, SHARES)[0])]
        for name, own in found.curves.items()
    ]
    page = table(["the best leaf, ranked by vectors", *MEASURES, "visited", "ms a query"], best)
    return [*page, "", *table(["R@100", "exact", *(f"{share:.0%} visited" for share in SHARES)], visited)]


def _means(own: Mapping[str, Values]) -> list[str]:
    return [f"{own[measure].mean():.3f}" for measure in MEASURES]


def ancestors(found: Findings) -> list[str]:
    """Cosines by depth."""
    depths = range(len(next(iter(found.similarities.values()))["cosine"]))
    body = [[name, *(f"{value:.3f}" for value in own["cosine"])] for name, own in found.similarities.items()]
    return table(["cosine of two documents, ancestor at depth", *(str(depth) for depth in depths)], body)


def shortlists(found: Findings) -> list[str]:
    """Measures of shortlists, and parts of the exact ones."""
    exact = {measure: found.exact[measure][0] for measure in MEASURES}
    body = [
        [name, *(f"{own[one].mean():.3f} ({own[one].mean() / exact[one].mean():.3f})" for one in MEASURES)]
        for name, own in found.shortlists.items()
    ]
    head = ["64 numbers, documents on the shortlist", *(f"{measure} (part of exact)" for measure in MEASURES)]
    return table(head, [*body, ["exact", *_means(exact)]])


def times(found: Speeds) -> list[str]:
    """Milliseconds of searches and of whole questions."""
    body = [[name, f"{found.batched[name]:.3f}", f"{found.alone[name]:.3f}"] for name in found.batched]
    page = table([f"flat search of {found.documents:,} documents, one thread", "ms, batches of 64", "ms, alone"], body)
    parts = sorted({part for own in found.whole.values() for part in own}, key=["encode", "tree", "search"].index)
    wholes = [
        [name, *(f"{own[part]:.2f}" if part in own else UNKNOWN for part in parts), f"{sum(own.values()):.2f}"]
        for name, own in found.whole.items()
    ]
    return [*page, "", *table(["a whole question, alone, ms", *parts, "all"], wholes)]


def attending(told: Sized) -> list[str]:
    """Attention beside rows that read vectors, with as many steps."""
    body = []
    for name in told.found:
        cells = [mean(list(told.coarse(name, measure))) for measure in MEASURES]
        body.append([name, *cells, *_means(told.found[name][told.full(name)]), f"{told.full(name):,}"])
    head = [*(f"{measure}, 4 to 32" for measure in MEASURES), *(f"{measure}, all" for measure in MEASURES), "numbers"]
    return table(["", *head], body)


def _plot_sizes(told: Sized, names: Sequence[str], measures: Sequence[str], path: Path) -> str:
    with plot(path, len(measures)) as every:
        for axes, measure in zip(every, measures, strict=True):
            for row in names:
                own = told.sizes(row)
                value_S = [told.mean(row, size, measure) for size in own]
                axes.plot(own, value_S, "o" if len(own) == 1 else "o-", markersize=3, label=row)
            axes.set_xscale("log", base=2)
            axes.set(xlabel="numbers of a text", title=measure)
        every[0].legend(fontsize=7)
    return link("Measures against the numbers that represent a text", path)


def _plot_similarities(found: Mapping[str, Mapping[str, Values]], path: Path) -> str:
    with plot(path) as (axes,):
        for row, own in found.items():
            depth_D = np.arange(len(own["cosine"]))
            axes.errorbar(depth_D, own["cosine"], 2 * own["error"], fmt="o-", markersize=3, label=row)
        axes.set(xlabel="depth of the lowest common ancestor", ylabel="cosine of two documents")
        axes.legend(fontsize=8)
    return link("Cosine of two documents against the depth of their lowest common ancestor", path)


def _plot_distances(found: Mapping[str, Values], path: Path) -> str:
    with plot(path) as (axes,):
        axes.errorbar(found["distance"], found["cosine"], found["deviation"], fmt="o-", capsize=3)
        axes.set(xlabel="edges between two splits", ylabel="cosine of their embeddings")
    return link("Cosine of the embeddings of two splits against their distance in the tree", path)


def _plot_speeds(found: Speeds, path: Path) -> str:
    with plot(path) as (axes,):
        for label, own in (("batches of 64", found.batched), ("alone", found.alone)):
            levels = {int(key.rpartition(" ")[2]): ms for key, ms in own.items() if key.startswith("L1")}
            line = axes.plot(list(levels), list(levels.values()), "o-", markersize=3, label=f"L1, {label}")[0]
            vectors = min(ms for key, ms in own.items() if "encoder" in key)
            axes.axhline(vectors, linestyle="--", color=line.get_color(), label=f"inner product of vectors, {label}")
        axes.set_xscale("log", base=2)
        axes.set(yscale="log", xlabel="numbers of a text", ylabel="milliseconds a query")
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8)
    return link("Milliseconds of a flat search against its numbers", path)
