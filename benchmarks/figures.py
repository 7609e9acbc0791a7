"""Keep figures of README, choosing.md and the scoreboard in docs/figures.json. Draw README's picture.

Each figure has its source. Benchmarks note figures with `--note`.
`tests/unit/test_figures.py` compares the pages with the file.
"""

import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.pages import plot
from rayhier.evaluate.plots import ACCENT

ROOT = Path(__file__).parents[1]
FIGURES, PICTURE = ROOT / "docs" / "figures.json", ROOT / "docs" / "images" / "gain.png"
GREY = "#b9c2bd"
ROWS = (
    ("SciFact", "scifact, all"),
    ("… new answers only", "scifact, new answers"),
    ("WordNet examples", "oewn_examples, all"),
    ("ACL titles", "acl_title2abs, all"),
    ("Cranfield, no judgements", "cranfield, all"),
)
"""Rows of README's table, and collection and group of their figures."""


def read() -> dict[str, dict[str, Any]]:
    """Read name of a figure -> value, command, commit, machine and date."""
    return json.loads(FIGURES.read_text()) if FIGURES.exists() else {}


def note(values: Mapping[str, float]) -> None:
    """Write figures that this process has measured, in place of older ones of the same names."""
    given = re.sub(r" --(workdir \S+|note)", "", shlex.join(sys.argv[1:]))
    command = f"python -m {getattr(sys.modules['__main__'].__spec__, 'name', '')} {given}"
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "describe", "--always"], capture_output=True, text=True, check=True).stdout.strip()
    changed = subprocess.run(
        [*git, "diff", "--quiet", "HEAD", "--", ".", f":!{FIGURES.relative_to(ROOT)}"], check=False
    )
    commit += "-dirty" if changed.returncode else ""
    machine = f"{os.cpu_count()} shared cores, {platform.machine()}, no GPU"
    date = str(datetime.datetime.now(datetime.UTC).date())
    about = {"command": command, "commit": commit, "machine": machine, "date": date}
    figures = read() | {name: {"value": round(value, 6), **about} for name, value in values.items()}
    FIGURES.write_text(json.dumps(dict(sorted(figures.items())), indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Draw README's picture from the figures."""
    figures = read()
    with plot(PICTURE, size=(7.0, 3.4)) as (axes,):
        axes.grid(visible=False)
        for row, (_, of) in enumerate(ROWS):
            before, after = (figures[f"{of}, {system}, nDCG@10"]["value"] for system in ("untouched", "shipped"))
            for place, value, colour in ((-0.2, before, GREY), (0.2, after, ACCENT)):
                axes.barh(row + place, value, 0.38, color=colour)
                axes.text(value + 0.008, row + place, f"{value:.2f}", va="center", fontsize=9, color="#1b211e")
            if row == 0:
                axes.text(0.008, row - 0.2, "without training", va="center", fontsize=8, color="#1b211e")
                axes.text(0.008, row + 0.2, "with rayhier", va="center", fontsize=8, color="white")
        axes.set_yticks(range(len(ROWS)), [name for name, _ in ROWS])
        axes.invert_yaxis()
        axes.set(xlim=(0, 1), xlabel="nDCG@10 of test queries (1 is perfect)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title("How much better are the answers after training?", loc="left", fontweight="bold")


if __name__ == "__main__":
    main()
