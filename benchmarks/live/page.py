"""Writes docs/live.md and its plots from the figures below a workdir; what was not measured is left out.

Other commands leave figures of their own below the workdir: `history.json`, `growth.json` and `new_model.json`, each a
table with a text before it, and curves where there are some.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks import pages
from benchmarks.live import changes, ingest, replay
from benchmarks.live.gauge import Taken
from benchmarks.tables import table

WINDOW = 50
"""Searches of which a point of the plot is the 95th percentile."""
OTHERS = {
    "history": "A checked history, beside kills",
    "growth": "Growth, with maintenance and without",
    "new_model": "A new model at once",
}
"""Files of other commands, and the titles of their sections."""


@dataclass(frozen=True)
class Figures:
    """Figures that another command leaves for the page."""

    text: str
    head: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    curves: dict[str, list[list[float]]] = field(default_factory=dict)
    """X and y of each curve."""
    axes: list[str] = field(default_factory=list)
    """What x and y are."""

    def write(self, workdir: Path, name: str) -> None:
        """Write the figures to `NAME.json` below a workdir."""
        (workdir / f"{name}.json").write_text(json.dumps(self.__dict__, indent=1))

    @classmethod
    def read(cls, workdir: Path, name: str) -> "Figures | None":
        """Read figures; None where there are none."""
        path = workdir / f"{name}.json"
        return cls(**json.loads(path.read_text())) if path.exists() else None


PARTS = {
    "changes": "Single changes beside searches",
    "ingest": "Ingest, vectors given",
    "replay": "Answers given again, while versions and models are swapped",
}
"""Titles of the sections that this folder measures; before each stands what was measured, `live/NAME.md`."""


def write(workdir: Path, docs: Path) -> str:
    """Write the page and its plots; returns the page's text."""
    parts = {"changes": beside(workdir, docs), "ingest": added(workdir, docs), "replay": replay.lines(workdir)}
    titled = [(PARTS[name], [*pages.prose(f"live/{name}.md"), "", *lines]) for name, lines in parts.items() if lines]
    titled += [(title, other(workdir, docs, name, title)) for name, title in OTHERS.items()]
    return pages.write(docs, "live.md", [*pages.prose("live/preface.md"), *pages.sections(titled)])


def beside(workdir: Path, docs: Path) -> list[str]:
    """Section of single changes: the table, and searches' times while they go on."""
    runs = changes.read(workdir)
    if not runs:
        return []
    times = runs[0]
    path = docs / "images" / "live-searches.png"
    with pages.plot(path) as (axes,):
        named = {}
        for kind in ("search, alone", "search, no changes", "search, beside changes"):
            ms, at = (np.array(values[kind]) for values in (times.ms, times.at))
            parts = np.array_split(np.arange(len(ms)), max(1, len(ms) // WINDOW))
            named[kind] = [[at[part].mean() for part in parts], [np.percentile(ms[part], 95) for part in parts]]
        pages.curves(axes, named, xlabel="seconds", ylabel=f"ms, 95% of {WINDOW} searches", yscale="log")
    return [
        *changes.lines(runs),
        "",
        pages.link("Searches' times of the first run, alone, beside other searches, and beside changes", path),
    ]


def added(workdir: Path, docs: Path) -> list[str]:
    """Section of ingest: the tables, and documents a second over the documents that were added."""
    lines = ingest.lines(workdir)
    if not lines:
        return []
    path = docs / "images" / "live-ingest.png"
    with pages.plot(path) as (axes,):
        named = {}
        for name in ingest.NAMES:
            for taken in [run for trial in ingest.TRIALS for run in Taken.read(workdir, trial, name)][-1:]:
                added = np.cumsum([0, *taken.rates]) * taken.documents / sum(taken.rates)
                label = ingest.NAMES[name].replace("`", "")
                named[label] = [np.linspace(0, taken.seconds, len(added)), added]
        pages.curves(axes, named, xlabel="seconds", ylabel="documents added", xlim=(0, None), ylim=(0, None))
    return [
        *lines,
        "",
        pages.link("Documents added by each system's last run: two for ten minutes, the others for 500,000", path),
    ]


def other(workdir: Path, docs: Path, name: str, title: str) -> list[str]:
    """Section of another command's figures; empty where there are none."""
    figures = Figures.read(workdir, name)
    if figures is None:
        return []
    lines = [figures.text, *(["", *table(figures.head, figures.rows)] if figures.rows else [])]
    if figures.curves:
        path = docs / "images" / f"live-{name}.png"
        with pages.plot(path) as (axes,):
            x, y = figures.axes
            pages.curves(axes, figures.curves, xlabel=x, ylabel=y)
        lines += ["", pages.link(title, path)]
    return lines
