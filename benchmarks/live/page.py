"""Write docs/results/live.md and its plots from the figures below a workdir, without sections that were not measured.

Sections of the page that are of other measurements stay at its end.
"""

import re
from pathlib import Path

import numpy as np

from benchmarks import pages
from benchmarks.live import changes, ingest, replay
from benchmarks.live.gauge import Taken

WINDOW = 50
"""Searches of which a point of the plot is the 95th percentile."""
PARTS = {
    "changes": "Single changes next to searches",
    "ingest": "Ingest, vectors given",
    "replay": "Answers given again, while versions and models are swapped",
}
"""Titles of the sections that this folder measures; before each stands what was measured, `live/NAME.md`."""


def write(workdir: Path, docs: Path) -> str:
    """Write the page and its plots; returns the page's text."""
    parts = {"changes": changed(workdir, docs), "ingest": added(workdir, docs), "replay": replay.lines(workdir)}
    titled = [(PARTS[name], [*pages.prose(f"live/{name}.md"), "", *lines]) for name, lines in parts.items() if lines]
    told = [*pages.prose("live/preface.md"), *pages.sections(titled), *others(docs / "live.md")]
    return pages.write(docs, "live.md", told)


def others(page: Path) -> list[str]:
    """Lines of the sections of a page that this folder does not measure."""
    sections = re.split(r"^## ", page.read_text() if page.exists() else "", flags=re.MULTILINE)[1:]
    kept = [one for one in sections if one.partition("\n")[0] not in PARTS.values()]
    return [line for one in kept for line in ("", f"## {one.rstrip()}")]


def changed(workdir: Path, docs: Path) -> list[str]:
    """Section of single changes: the table, and searches' times while they go on."""
    runs = changes.read(workdir)
    if not runs:
        return []
    times = runs[0]
    path = docs / "images" / "live-searches.png"
    with pages.plot(path) as (axes,):
        named = {}
        for kind in ("search, alone", "search, no changes", "search, next to changes"):
            ms, at = (np.array(values[kind]) for values in (times.ms, times.at))
            parts = np.array_split(np.arange(len(ms)), max(1, len(ms) // WINDOW))
            named[kind] = [[at[part].mean() for part in parts], [np.percentile(ms[part], 95) for part in parts]]
        pages.curves(axes, named, xlabel="seconds", ylabel=f"ms, 95% of {WINDOW} searches", yscale="log")
    return [
        *changes.lines(runs),
        "",
        pages.link("Times of searches in the first run: alone, next to other searches, and next to changes", path),
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
