"""Draw the three plots of an evaluation, as SVG and PNG."""

import io
from collections.abc import Callable
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rayhier.evaluate.evaluation import Evaluation
from rayhier.evaluate.report import Report
from rayhier.spec import JobSpec
from rayhier.storage import files
from rayhier.storage.paths import Location

TITLES = {
    "recall_visited": "Recall against documents visited",
    "leaf_sizes": "Leaf sizes",
    "training": "Training curves",
}
WIDTH, HEIGHT, DPI = 7.0, 4.2, 130
STYLES = ("-o", "--s", ":^", "-.d", "-x", "--v")
PHASES = ("-", "--", "-.")
"""Line styles of the phases of a training, in order."""
LEVELS = (":", "-", "--")


def write(spec: JobSpec, evaluation: Evaluation, report: Report, folder: Location) -> None:
    """Write the plots `recall_visited`, `leaf_sizes` and `training` below `folder`, as SVG and PNG."""
    draw: dict[str, Callable[[Axes], None]] = {
        "recall_visited": lambda axes: recall_visited(axes, evaluation, report, spec.evaluate.deepest_recall),
        "leaf_sizes": lambda axes: leaf_sizes(axes, evaluation),
        "training": lambda axes: training(axes, evaluation),
    }
    for name, fill in draw.items():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.subplots()
        axes.set_title(TITLES[name])
        axes.grid(alpha=0.3)
        fill(axes)
        for suffix in ("svg", "png"):
            data = io.BytesIO()
            figure.savefig(data, format=suffix, dpi=DPI, metadata={"Date": None} if suffix == "svg" else None)
            files.replace(folder / f"{name}.{suffix}", data.getvalue())


def recall_visited(axes: Axes, evaluation: Evaluation, report: Report, measure: str) -> None:
    """Draw a curve for each system, the mean over seeds; a system without a curve is a horizontal line."""
    for number, name in enumerate(evaluation.seeds[0].curves):
        curves = [result.curves[name] for result in evaluation.seeds]
        x = np.mean([[point.visited_mean for point in curve] for curve in curves], axis=0)
        y = np.mean([[point.measures[measure] for point in curve] for curve in curves], axis=0)
        axes.plot(x, y, STYLES[number % len(STYLES)], markersize=3.5, label=report.label(name))
    first = evaluation.seeds[0]
    whole = [name for name, row in first.rows.items() if name not in first.curves and "calls" not in row]
    for number, name in enumerate(whole):
        level = float(np.mean([result.rows[name][measure] for result in evaluation.seeds]))
        axes.axhline(level, color="0.45", linewidth=1, linestyle=LEVELS[number % len(LEVELS)], label=name)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.set_xlabel("documents visited, share of the corpus")
    axes.set_ylabel(measure)
    axes.legend(fontsize=8)


def leaf_sizes(axes: Axes, evaluation: Evaluation) -> None:
    for result in evaluation.seeds:
        sizes = sorted(result.sizes, reverse=True)
        axes.plot(
            range(1, len(sizes) + 1), sizes, label=f"seed {result.seed}, imbalance {result.balance['imbalance']:.2f}"
        )
    even = evaluation.documents / len(evaluation.seeds[0].sizes)
    axes.axhline(even, color="0.45", linewidth=1, linestyle=":", label=f"even: {even:.1f}")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("leaf, largest first")
    axes.set_ylabel("documents")
    axes.legend(fontsize=8)


def training(axes: Axes, evaluation: Evaluation) -> None:
    losses = axes.twinx()
    for number, result in enumerate(evaluation.seeds):
        color, begin = f"C{number % 10}", 0.0
        for style, (phase, rows) in zip(cycle(PHASES), result.history.items(), strict=False):
            epochs = [begin + row["epoch"] for row in rows]
            axes.plot(epochs, [row["dev"] for row in rows], style, color=color, label=f"{phase}, seed {result.seed}")
            learned = [row for row in rows if "loss_total" in row]
            losses.plot(
                [begin + row["epoch"] for row in learned], [row["loss_total"] for row in learned], ":", color=color
            )
            begin = epochs[-1]
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch")
    axes.set_ylabel("dev: recall, or the router's probability (lines)")
    losses.set_ylabel("loss (dotted)")
    axes.legend(fontsize=8, loc="center right")
