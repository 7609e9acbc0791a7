"""Show the progress of long work on standard error: a bar, or plain lines if no bar can be shown."""

import logging
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.progress import Progress

FIRST_SECONDS, PLAIN_SECONDS = 2.0, 30.0
"""Least seconds before the first plain line of progress, and between two plain lines."""


def say(text: str) -> None:
    if StageProgress.current is None or StageProgress.current.progress is None:
        print(text, file=sys.stderr, flush=True)  # noqa: T201
    else:
        StageProgress.current.progress.console.print(text)  # above the bar


def shows_bars() -> bool:
    return sys.stderr.isatty() and find_spec("rich") is not None


def _bar() -> "Progress":
    from rich import progress as rich
    from rich.console import Console
    from rich.table import Column

    counts = rich.BarColumn(20), rich.MofNCompleteColumn(), rich.TimeRemainingColumn()
    note = rich.TextColumn(
        "{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True)
    )  # this column gets the remaining width
    console = Console(file=sys.stderr, highlight=False, markup=False, soft_wrap=True)
    columns = rich.SpinnerColumn(), "{task.description}", *counts, note
    return rich.Progress(*columns, console=console, transient=True, expand=True)


def counted(rows: int, documents: int | None) -> str:
    """Say how many documents there are, and the number of rows if documents are cut into passages."""
    shown = rows if documents is None else documents
    return f"{shown:,} document{'s' * (shown != 1)}{f' ({rows:,} passages)' if rows > shown else ''}"


def log(text: str) -> None:
    logging.getLogger("rayhier").info(text.strip())


def here(place: object) -> str:
    """Return a path as text, relative if below the current directory. Ray may have removed the current directory."""
    try:
        return str(place).removeprefix(f"{Path.cwd()}{os.sep}")
    except FileNotFoundError:
        return str(place)


class StageProgress:
    """The bar of one stage, for use as a context manager. The bar shows `loading` until a Bar begins."""

    current: "StageProgress | None" = None

    def __init__(self, title: str) -> None:
        self.progress = _bar() if shows_bars() else None
        self.task = None if self.progress is None else self.progress.add_task(title, total=None, note="loading")

    def __enter__(self) -> Self:
        StageProgress.current = self
        if self.progress is not None:
            self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        StageProgress.current = None
        if self.progress is not None:
            self.progress.stop()


class Bar:
    """A count that goes to a total, on its stage's bar or in plain lines, for use as a context manager."""

    def __init__(self, label: str, total: int, unit: str) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0
        self._note = ""
        self._speaks = time.monotonic() + FIRST_SECONDS
        self._own = None if StageProgress.current is not None else StageProgress(label)

    def __enter__(self) -> Self:
        if self._own is not None:
            self._own.__enter__()
        self._show(total=self.total, completed=0, note="")
        return self

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Add `amount` to the count and show the count. `note` is text shown after the count from now on."""
        self.done += amount
        self._note = note or self._note
        self._show(completed=self.done, note=self._note)
        if not shows_bars() and self.done < self.total and time.monotonic() >= self._speaks:
            self._speaks = time.monotonic() + PLAIN_SECONDS
            say(f"  {self.label}: {self.done:,} of {self.total:,} {self.unit}{f'  {self._note}' if self._note else ''}")

    def expect(self, total: int) -> None:
        """Replace the total of the count by a better estimate."""
        self.total = total
        self._show(total=total)

    def reach(self, done: int, note: str = "") -> None:
        """Set the count to `done`, which may be less than before. `note` is text shown after the count from now on."""
        self.advance(done - self.done, note)

    def __exit__(self, *error: object) -> None:
        if self._own is not None:
            self._own.__exit__(*error)

    def _show(self, **fields: Any) -> None:
        stage = StageProgress.current
        if stage is not None and stage.progress is not None and stage.task is not None:
            stage.progress.update(stage.task, **fields)
