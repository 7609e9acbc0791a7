"""Plot the results of a report. Each plot answers the question in its title, and labels its curves directly."""

import io
from collections.abc import Callable, Mapping
from itertools import chain, cycle
from operator import itemgetter
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator, NullFormatter, PercentFormatter

from rayhier.arrays import Values
from rayhier.evaluate.evaluation import Evaluation
from rayhier.evaluate.report import Report
from rayhier.spec import JobSpec
from rayhier.storage import files
from rayhier.storage.paths import Location

TITLES = {
    "recall_visited": "How many documents must be read to find the answers?",
    "leaf_sizes": "Do the leaves have equally many documents?",
    "training": "Did training still gain at its end?",
}
WIDTH, HEIGHT, DPI = 7.0, 4.2, 130
ACCENT = "#1f5f43"
OTHERS: list[dict[str, Any]] = [
    {"color": "#8a5a00", "linestyle": "--"},
    {"color": "#5b6470", "linestyle": ":"},
    {"color": "#7a4a8a", "linestyle": "-."},
    {"color": "#3f6fa8", "linestyle": (0, (1, 3))},
]
"""Styles of the lines for systems that the index is compared with."""
SMALL = 8
PLACES = 30
"""Number of places along a curve that are tried for the curve's name."""
SIDES: dict[Literal["left", "right"], tuple[int, int]] = {"left": (6, -9), "right": (-6, 4)}
"""Alignment of a name -> its distance from the curve in points."""


def write_plots(spec: JobSpec, evaluation: Evaluation, report: Report, folder: Location) -> None:
    """Write the plots `recall_visited`, `leaf_sizes` and `training` below `folder`, as SVG and PNG."""
    draw: dict[str, Callable[[Figure], None]] = {
        "recall_visited": lambda figure: _recall_visited(figure, evaluation, report, spec.evaluate.deepest_recall),
        "leaf_sizes": lambda figure: _leaf_sizes(figure, evaluation),
        "training": lambda figure: _training(figure, evaluation),
    }
    for name, fill in draw.items():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        figure.suptitle(TITLES[name], x=0.02, ha="left", fontweight="bold")
        with rc_context({"axes.spines.top": False, "axes.spines.right": False}):
            fill(figure)
        for suffix in ("svg", "png"):
            data = io.BytesIO()
            figure.savefig(data, format=suffix, dpi=DPI, metadata={"Date": None} if suffix == "svg" else None)
            files.replace(folder / f"{name}.{suffix}", data.getvalue())


def name_curves(figure: Figure, axes: Axes, names: Mapping[str, Line2D]) -> None:
    """Write the name of each curve at the place where the name covers the fewest lines and names."""
    figure.draw_without_rendering()
    taken = [_dense(line.get_transform().transform(line.get_xydata())) for line in axes.lines]
    for name, line in names.items():
        tried = list[tuple[bool, int, Annotation]]()
        for at in _dense(np.asarray(line.get_xydata()), PLACES):
            for side, place in SIDES.items():
                text = axes.annotate(name, at, place, textcoords="offset points", fontsize=SMALL, ha=side)
                text.set_color(line.get_color())
                box = text.get_window_extent()
                inside = axes.bbox.contains(*box.min) and axes.bbox.contains(*box.max)
                covered = sum(int(((box.min < points) & (points < box.max)).all(1).sum()) for points in taken)
                tried.append((not inside, covered, text))
        best = min(tried, key=itemgetter(0, 1))[2]
        for *_, text in tried:
            if text is not best:
                text.remove()
        low, high = best.get_window_extent().get_points()
        taken.append(np.stack(np.meshgrid(*np.linspace(low, high, PLACES).T), axis=-1).reshape(-1, 2))


def _dense(points: Values, count: int = 400) -> Values:
    """Place `count` points on the line through points [p, 2], equally many between neighbours."""
    place = np.linspace(0, len(points) - 1, count)
    return np.stack([np.interp(place, np.arange(len(points)), axis) for axis in np.asarray(points).T], axis=1)


def _recall_visited(figure: Figure, evaluation: Evaluation, report: Report, measure: str) -> None:
    """Draw a curve for each system, the mean over seeds. A system without a curve is a horizontal line."""
    axes = figure.subplots()
    names, forms = dict[str, Line2D](), chain([{"color": ACCENT, "linewidth": 2.6}], cycle(OTHERS))
    for name, form in zip(evaluation.seeds[0].curves, forms, strict=False):
        seeds = [result.curves[name] for result in evaluation.seeds]
        x = np.mean([[point.visited_mean for point in curve] for curve in seeds], axis=0)
        y = np.mean([[point.measures[measure] for point in curve] for curve in seeds], axis=0)
        (names[report.label(name)],) = axes.plot(x, y, **form)
    first = evaluation.seeds[0]
    whole = [name for name, row in first.rows.items() if name not in first.curves and "calls" not in row]
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.xaxis.set_minor_formatter(NullFormatter())
    reads = np.geomspace(
        min([0.1, *(float(np.min(np.asarray(line.get_xdata()))) for line in names.values())]), 1.0, PLACES
    )
    for name in whole:
        level = float(np.mean([result.rows[name][measure] for result in evaluation.seeds]))
        (names[report.label(name)],) = axes.plot(reads, np.full(PLACES, level), color="0.45", linewidth=0.8)
    axes.set_xlabel("share of the documents that a query reads")
    axes.set_ylabel(f"share of the answers found ({measure})")
    name_curves(figure, axes, names)


def _leaf_sizes(figure: Figure, evaluation: Evaluation) -> None:
    axes = figure.subplots()
    for result in evaluation.seeds:
        sizes = sorted(result.sizes, reverse=True)
        axes.plot(range(1, len(sizes) + 1), sizes, color=ACCENT, linewidth=2)
    even = evaluation.documents / len(evaluation.seeds[0].sizes)
    axes.axhline(even, color="0.6", linewidth=0.8)
    axes.text(len(evaluation.seeds[0].sizes), even, f"{even:.1f} each", ha="right", va="bottom", fontsize=SMALL)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("leaves, largest first")
    axes.set_ylabel("documents of a leaf")


def _training(figure: Figure, evaluation: Evaluation) -> None:
    phases = list(evaluation.seeds[0].history)
    for axes, phase in zip(figure.subplots(1, max(1, len(phases)), squeeze=False)[0], phases, strict=False):
        for result in evaluation.seeds:
            rows = result.history.get(phase, [])
            axes.plot([row["epoch"] for row in rows], [row["dev"] for row in rows], "o-", markersize=3, color=ACCENT)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(f"epoch of the {phase}")
        axes.set_ylabel("measure on dev, higher is better")
