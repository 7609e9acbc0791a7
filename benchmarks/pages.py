"""Pages of docs/ that benchmarks write, and their plots."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

SIZE, DPI = (7.0, 3.6), 110


def prose(name: str, **values: object) -> list[str]:
    """Lines of a file of this folder, what was measured and what the figures say, with values in its {places}."""
    text = (Path(__file__).parent / name).read_text()
    return text.format(**values).splitlines() if values else text.splitlines()


def sections(titled: Iterable[tuple[str, list[str]]], level: int = 2) -> list[str]:
    """Headings, each with its lines; those without a line are left out."""
    return [line for title, own in titled if own for line in ("", f"{'#' * level} {title}", "", *own)]


def write(folder: Path, name: str, lines: Iterable[str]) -> str:
    """Write a page into a folder; returns its text."""
    text = "\n".join(lines) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return text


@contextmanager
def plot(
    path: Path, panels: int = 1, size: tuple[float, float] = SIZE, *, sharey: bool = False
) -> Iterator[list[Axes]]:
    """Axes to draw on, a panel each, with a grid; what was drawn is saved as a file when the block ends."""
    figure = Figure(figsize=size, layout="constrained")
    every = list(figure.subplots(1, panels, squeeze=False, sharey=sharey)[0])
    for axes in every:
        axes.grid(alpha=0.3)
    yield every
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)


Series = Sequence[Any]
"""X and y of a curve; and their errors below and above, or both at once, where these are drawn."""


def curves(axes: Axes, named: Mapping[str, Series], form: str = "o-", fontsize: int = 8, **settings: Any) -> None:
    """Draw curves by name, with a legend; settings are those of the axes, such as xlabel, and xbase of a logarithm."""
    for name, (x, y, *errors) in named.items():
        if errors:
            axes.errorbar(x, y, errors[0], fmt=form, markersize=3, capsize=2, label=name)
        else:
            axes.plot(x, y, form, markersize=3, label=name)
    if "xbase" in settings:
        axes.set_xscale("log", base=settings.pop("xbase"))
    axes.set(**settings)
    if fontsize:
        axes.legend(fontsize=fontsize)


def link(title: str, path: Path) -> str:
    """A page's link to a plot below its folder images."""
    return f"![{title}](images/{path.name})"
