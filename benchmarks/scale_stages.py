"""Seconds and memory of the stages of a run: the proportional set size (PSS) of every process below this one."""

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rayhier.progress import say

EVERY = 0.5
"""Seconds between two looks."""


@dataclass
class Memory:
    """Largest PSS seen, in bytes."""

    process: int = 0
    total: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Look until `over` is set, and once more."""
        last = False
        while not last:
            last = self.over.wait(EVERY)
            sizes = [pss(pid) for pid in below(os.getpid())]
            self.process, self.total = max(self.process, *sizes), max(self.total, sum(sizes))


def below(root: int) -> list[int]:
    """A process and all below it, Ray's included."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found = {root}
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return sorted(found)


def pss(pid: int) -> int:
    """Proportional set size in bytes, 0 where the process is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


class Stages:
    """Seconds and bytes of each stage, kept beside what it made: a run that finds that there says what it took."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "stages.json"
        self.took: dict[str, dict[str, float]] = json.loads(self._path.read_text()) if self._path.exists() else {}

    @contextmanager
    def of(self, name: str, *makes: str) -> Iterator[None]:
        """Measure a block, unless the folders it makes are there; what an interrupted one left of them goes first."""
        there = bool(makes) and name in self.took and all((self._path.parent / one).exists() for one in makes)
        for one in () if there else makes:
            shutil.rmtree(self._path.parent / one, ignore_errors=True)
        memory, began = Memory(), time.monotonic()
        thread = threading.Thread(target=memory.watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            memory.over.set()
            thread.join()
        if not there:
            seconds = time.monotonic() - began
            self.took[name] = {"seconds": seconds, "process": memory.process, "total": memory.total}
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self.took, indent=1))
        took = self.took[name]
        say(f"  {name}: {took['seconds']:.0f} s, {took['process'] / 1e9:.2f} GB")
