"""Plots of docs/hce.md."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.hce.findings import Comparison
from benchmarks.hce.rows import PLAIN
from benchmarks.hce.visited import PLAIN_LEARNED, PLAIN_LISTS, Visits

SIZE, DPI = (7.0, 3.6), 110


def branchings(told: Comparison, images: Path) -> str:
    """Points above contrast at some depths against the tree's branching (the paper's Figure 4); a link to the plot."""
    figure = Figure(figsize=SIZE, layout="constrained")
    shown = {row.name: row.train["tree"]["branching"] for row in told.rows if row.train and "tree" in row.train}
    every = figure.subplots(1, 4, sharey=True)
    for axes, measure in zip(every, ("R@1", "R@5", "R@10", "R@100"), strict=True):
        value_B, low_B, high_B = np.array([told.difference(name, PLAIN.name, measure) for name in shown]).T
        axes.errorbar(list(shown.values()), value_B, [value_B - low_B, high_B - value_B], fmt="o-", capsize=3)
        axes.axhline(0, color="0.5", linestyle="--")
        axes.set_xscale("log", base=2)
        axes.set_title(measure)
        axes.set_xlabel("children of a node, b")
        axes.grid(alpha=0.3)
    every[0].set_ylabel("points above contrast")
    return _kept(figure, images, "hce_branching.png", "Points above contrast against branching")


def visits(found: Visits, images: Path) -> str:
    """Recall against documents visited of every system; a link to the plot."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    for name, curve in found.curves.items():
        visited_P, recall_P = curve.visited_PQ.mean(axis=1), curve.recall_PQ.mean(axis=1)
        label = f"{name.replace('`', '')}, {found.leaves[name]:,} leaves"
        axes.plot(100 * visited_P, recall_P, "--" if name in (PLAIN_LEARNED, PLAIN_LISTS) else "-", label=label)
    axes.set_xscale("log")
    axes.set_xlabel("documents visited, %")
    axes.set_ylabel("R@100")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    return _kept(figure, images, "hce_visited.png", "Recall against documents visited")


def _kept(figure: Figure, images: Path, name: str, title: str) -> str:
    images.mkdir(parents=True, exist_ok=True)
    figure.savefig(images / name, dpi=DPI)
    return f"![{title}](images/{name})"
