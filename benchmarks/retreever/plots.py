"""Plots of docs/retreever.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.pages import link, plot
from benchmarks.retreever.findings import Sized
from benchmarks.retreever.speed import Speeds
from rayhier.arrays import Values


def sizes(told: Sized, names: Sequence[str], measures: Sequence[str], path: Path) -> str:
    """Measures against the numbers that represent a text; a link to the plot."""
    with plot(path, len(measures)) as every:
        for axes, measure in zip(every, measures, strict=True):
            for row in names:
                own = told.sizes(row)
                value_S = [told.mean(row, size, measure) for size in own]
                axes.plot(own, value_S, "o" if len(own) == 1 else "o-", markersize=3, label=row)
            axes.set_xscale("log", base=2)
            axes.set_xlabel("numbers of a text")
            axes.set_title(measure)
        every[0].legend(fontsize=7)
    return link("Measures against the numbers that represent a text", path)


def similarities(found: Mapping[str, Mapping[str, Values]], path: Path) -> str:
    """Cosine of two documents against the depth of their lowest common ancestor; a link to the plot."""
    with plot(path) as (axes,):
        for row, own in found.items():
            axes.errorbar(
                np.arange(len(own["cosine"])), own["cosine"], 2 * own["error"], fmt="o-", markersize=3, label=row
            )
        axes.set_xlabel("depth of the lowest common ancestor")
        axes.set_ylabel("cosine of two documents")
        axes.legend(fontsize=8)
    return link("Cosine of two documents against the depth of their lowest common ancestor", path)


def distances(found: Mapping[str, Values], path: Path) -> str:
    """Cosine of the embeddings of two splits against their distance in the tree; a link to the plot."""
    with plot(path) as (axes,):
        axes.errorbar(found["distance"], found["cosine"], found["deviation"], fmt="o-", capsize=3)
        axes.set_xlabel("edges between two splits")
        axes.set_ylabel("cosine of their embeddings")
    return link("Cosine of the embeddings of two splits against their distance in the tree", path)


def speeds(found: Speeds, path: Path) -> str:
    """Milliseconds of a flat search against its numbers; a link to the plot."""
    with plot(path) as (axes,):
        for label, own in (("batches of 64", found.batched), ("alone", found.alone)):
            levels = {int(key.rpartition(" ")[2]): ms for key, ms in own.items() if key.startswith("L1")}
            line = axes.plot(list(levels), list(levels.values()), "o-", markersize=3, label=f"L1, {label}")[0]
            vectors = min(ms for key, ms in own.items() if "encoder" in key)
            axes.axhline(vectors, linestyle="--", color=line.get_color(), label=f"inner product of vectors, {label}")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("numbers of a text")
        axes.set_ylabel("milliseconds a query")
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8)
    return link("Milliseconds of a flat search against its numbers", path)
