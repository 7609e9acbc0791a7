"""Plots of docs/retreever.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.retreever.findings import Sized
from benchmarks.retreever.kept import Array
from benchmarks.retreever.speed import Speeds

SIZE, DPI = (7.0, 3.6), 110


def sizes(told: Sized, names: Sequence[str], measures: Sequence[str], images: Path, name: str) -> str:
    """Measures against the numbers that represent a text; a link to the plot."""
    figure = Figure(figsize=SIZE, layout="constrained")
    every = figure.subplots(1, len(measures), squeeze=False)[0]
    for axes, measure in zip(every, measures, strict=True):
        for row in names:
            own = told.sizes(row)
            value_S = [told.mean(row, size, measure) for size in own]
            axes.plot(own, value_S, "o" if len(own) == 1 else "o-", markersize=3, label=row)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("numbers of a text")
        axes.set_title(measure)
        axes.grid(alpha=0.3)
    every[0].legend(fontsize=7)
    return _kept(figure, images, name, "Measures against the numbers that represent a text")


def similarities(found: Mapping[str, Mapping[str, Array]], images: Path, name: str) -> str:
    """Cosine of two documents against the depth of their lowest common ancestor; a link to the plot."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    for row, own in found.items():
        axes.errorbar(np.arange(len(own["cosine"])), own["cosine"], 2 * own["error"], fmt="o-", markersize=3, label=row)
    axes.set_xlabel("depth of the lowest common ancestor")
    axes.set_ylabel("cosine of two documents")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return _kept(figure, images, name, "Cosine of two documents against the depth of their lowest common ancestor")


def distances(found: Mapping[str, Array], images: Path, name: str) -> str:
    """Cosine of the embeddings of two splits against their distance in the tree; a link to the plot."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    axes.errorbar(found["distance"], found["cosine"], found["deviation"], fmt="o-", capsize=3)
    axes.set_xlabel("edges between two splits")
    axes.set_ylabel("cosine of their embeddings")
    axes.grid(alpha=0.3)
    return _kept(figure, images, name, "Cosine of the embeddings of two splits against their distance in the tree")


def speeds(found: Speeds, images: Path, name: str) -> str:
    """Milliseconds of a flat search against its numbers; a link to the plot."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
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
    return _kept(figure, images, name, "Milliseconds of a flat search against its numbers")


def _kept(figure: Figure, images: Path, name: str, title: str) -> str:
    images.mkdir(parents=True, exist_ok=True)
    figure.savefig(images / name, dpi=DPI)
    return f"![{title}](images/{name})"
