"""Measure a benchmark's use of the machine: threads, memory, and seconds in rounds of several pieces of work."""

import json
import os
import resource
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch

from rayhier.arrays import Values
from rayhier.cluster.library import faiss
from rayhier.progress import say

THREADS = min(2, os.cpu_count() or 1)
EVERY = 0.5
"""Seconds between two looks at the memory of processes."""


def set_threads(threads: int) -> None:
    """Set the number of threads that faiss and torch use."""
    faiss.omp_set_num_threads(threads)
    torch.set_num_threads(threads)


def timed(work: Callable[[], object]) -> float:
    """Seconds that a piece of work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def medians(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each piece of work over interleaved rounds, after one that warms up."""
    return {name: float(np.median(seconds_R)) for name, seconds_R in interleaved(works, rounds).items()}


def interleaved(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Values]:
    """Seconds [rounds] of each piece of work, all in each round, after one that warms up.

    What else the machine does falls on all of them.
    """
    for work in works.values():
        work()
    taken = [{name: timed(work) for name, work in works.items()} for _ in range(rounds)]
    return {name: np.array([seconds[name] for seconds in taken]) for name in works}


def peak_memory() -> int:
    """Bytes of this process's peak resident set."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


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


@contextmanager
def watching(look: Callable[[], object], every: float = EVERY) -> Iterator[None]:
    """Call `look` again and again while the block runs, and once more when it is over."""
    over = threading.Event()

    def watch() -> None:
        last = False
        while not last:
            last = over.wait(every)
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens at."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def listens(port: int) -> bool:
    """Return True if a process of this machine listens at a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Stages:
    """Seconds of each stage, and bytes (PSS) of the largest process and of all, kept beside what it made."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "stages.json"
        self.took: dict[str, dict[str, float]] = json.loads(self._path.read_text()) if self._path.exists() else {}

    @contextmanager
    def of(self, name: str, *makes: str) -> Iterator[None]:
        """Measure a block, unless the folders it makes are there; what an interrupted one left of them goes first."""
        there = bool(makes) and name in self.took and all((self._path.parent / one).exists() for one in makes)
        for one in () if there else makes:
            shutil.rmtree(self._path.parent / one, ignore_errors=True)
        began, sizes = time.monotonic(), list[list[int]]()
        with watching(lambda: sizes.append([pss(pid) for pid in below(os.getpid())])):
            yield
        if not there:
            seconds = time.monotonic() - began
            self.took[name] = {"seconds": seconds, "process": max(map(max, sizes)), "total": max(map(sum, sizes))}
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(self.took, indent=1))
        took = self.took[name]
        say(f"  {name}: {took['seconds']:.0f} s, {took['process'] / 1e9:.2f} GB")
