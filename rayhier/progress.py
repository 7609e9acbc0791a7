"""Show the progress of a long step on standard error: a bar on a terminal, else a plain line every few seconds."""

import os
import sys
import time
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PLAIN_SECONDS = 5.0
"""Least seconds between two lines of progress where standard error is no terminal."""

console = Console(file=sys.stderr, highlight=False, markup=False, soft_wrap=True)


def say(text: str) -> None:
    """Print a line on standard error, for the person who runs the job."""
    console.print(text)


def here(place: object) -> str:
    """Return a path as text: relative where it lies below the current directory, any other place unchanged.

    A job's directory is a copy that a node of Ray may remove while the job runs: then no place is below it.
    """
    try:
        return str(place).removeprefix(f"{Path.cwd()}{os.sep}")
    except FileNotFoundError:
        return str(place)


class Bar:
    """A bar on standard error that shows a count on its way to a total; use as a context manager."""

    def __init__(self, label: str, total: int, unit: str) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0
        self._note = ""
        self._spoken = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, TextColumn("{task.fields[note]}"), console=console, transient=True)
            self._bar.start()
            self._bar.add_task(f"  {self.label}", total=self.total, note="")
        return self

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Add `amount` to the count and show it; `note` is text shown after the count from now on."""
        self.done += amount
        self._note = note or self._note
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done, note=self._note)
        elif time.monotonic() - self._spoken >= PLAIN_SECONDS or (note and self.done >= self.total):
            self._spoken = time.monotonic()
            say(f"  {self.label}: {self.done:,} of {self.total:,} {self.unit}{f'  {self._note}' if self._note else ''}")

    def expect(self, total: int) -> None:
        """Replace the total that the count goes to, when a better estimate is known."""
        self.total = total
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], total=total)

    def reach(self, done: int, note: str = "") -> None:
        """Set the count to `done`, which may be less than before; `note` is text shown after the count from now on."""
        self.advance(done - self.done, note)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
