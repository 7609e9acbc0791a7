"""Plots of docs/hce.md."""

from pathlib import Path

import numpy as np

from benchmarks.hce.findings import Comparison
from benchmarks.hce.rows import PLAIN
from benchmarks.hce.visited import PLAIN_LEARNED, PLAIN_LISTS, Visits
from benchmarks.pages import link, plot


def branchings(told: Comparison, path: Path) -> str:
    """Points above contrast at some depths against the tree's branching (the paper's Figure 4); a link to the plot."""
    shown = {row.name: row.train["tree"]["branching"] for row in told.rows if row.train and "tree" in row.train}
    with plot(path, 4, sharey=True) as panels:
        for axes, measure in zip(panels, ("R@1", "R@5", "R@10", "R@100"), strict=True):
            over = [told.difference(name, PLAIN.name, measure) for name in shown]
            value_B, low_B, high_B = np.array([(own.difference, own.low, own.high) for own in over]).T
            axes.errorbar(list(shown.values()), value_B, [value_B - low_B, high_B - value_B], fmt="o-", capsize=3)
            axes.axhline(0, color="0.5", linestyle="--")
            axes.set_xscale("log", base=2)
            axes.set(title=measure, xlabel="children of a node, b")
        panels[0].set_ylabel("points above contrast")
    return link("Points above contrast against branching", path)


def visits(found: Visits, path: Path) -> str:
    """Recall against documents visited of every system; a link to the plot."""
    with plot(path) as (axes,):
        for name, curve in found.curves.items():
            visited_P, recall_P = curve.visited_PQ.mean(axis=1), curve.recall_PQ.mean(axis=1)
            label = f"{name.replace('`', '')}, {found.leaves[name]:,} leaves"
            axes.plot(100 * visited_P, recall_P, "--" if name in (PLAIN_LEARNED, PLAIN_LISTS) else "-", label=label)
        axes.set(xscale="log", xlabel="documents visited, %", ylabel="R@100")
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8)
    return link("Recall against documents visited", path)
