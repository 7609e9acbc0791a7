"""Measure an ingest: files and bytes below a folder, a process's memory, answers and their times.

Needs numpy alone, so that systems of other environments are measured the same way.
"""

import json
import math
import os
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.live.stream import BATCH, Stream

WARM = 50
"""Searches before those that are timed."""
MARKS = (250_000, 500_000, 1_000_000, 1_500_000, 2_000_000)
"""Numbers of added documents until which the time is noted."""
EVERY = 0.5
"""Seconds between two looks at a process's memory."""


def about(*settings: str) -> str:
    """Say when, where, with which version and with which settings something is measured."""
    cpu, memory = Path("/proc/cpuinfo").read_text(), Path("/proc/meminfo").read_text()
    model = next((line.partition(": ")[2] for line in cpu.splitlines() if line.startswith("model name")), "")
    size = int(memory.split()[1]) >> 20
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    machine = f"{os.cpu_count()} processors ({model}), {size} GiB"
    return ", ".join([time.strftime("%Y-%m-%d"), machine, f"rayhier {project['version']}", *settings])


@dataclass
class Asked:
    """Figures of searches with one effort."""

    effort: str
    median: float
    p99: float
    """Milliseconds of a search."""
    recall: float
    """Share of the exact ten in the searches' ten."""
    texts: float
    """Share of the exact ten's texts in those of the searches' ten."""


@dataclass
class Taken:
    """Figures of an ingest."""

    system: str
    trial: str
    """What ended it: documents or seconds."""
    call: int = 0
    """Documents of a call, which are durable when it returns."""
    about: str = field(default_factory=about)
    batches: int = 0
    documents: int = 0
    seconds: float = 0.0
    """Seconds from the first batch until all documents are in the index."""
    longest: float = 0.0
    """Longest seconds in which no batch was taken."""
    rates: list[float] = field(default_factory=list)
    """Documents a second in each tenth of the time."""
    reached: dict[str, float] = field(default_factory=dict)
    """Seconds until so many documents were added, for each of some numbers."""
    files: int = 0
    bytes: int = 0
    cache: int = 0
    """Bytes of files that searches map, made of the others."""
    cpu: float = 0.0
    """Seconds of processors that the system's process took for all documents."""
    memory: int = 0
    """Most bytes of the process's memory that are its own, without mapped files, while it adds."""
    resident: int = 0
    """Most bytes of the process's memory with mapped files, while it adds and searches."""
    searches: list[Asked] = field(default_factory=list)
    """Searches at the end, by effort."""

    @property
    def rate(self) -> float:
        """Documents a second, until all of them are in the index."""
        return self.documents / self.seconds

    @classmethod
    def read(cls, folder: Path, trial: str, system: str) -> "list[Taken]":
        """Read a system's figures of a trial, a run after the other."""
        paths = sorted(folder.glob(f"ingest-{trial}-{system}.[0-9]*.json"))
        read = [json.loads(path.read_text()) for path in paths]
        return [cls(**{**values, "searches": [Asked(**each) for each in values["searches"]]}) for values in read]

    def write(self, folder: Path, run: int) -> None:
        """Write the figures to `ingest-TRIAL-SYSTEM.RUN.json` below a folder."""
        (folder / f"ingest-{self.trial}-{self.system}.{run}.json").write_text(json.dumps(asdict(self), indent=1))


@dataclass(frozen=True)
class Until:
    """When an ingest ends: after some seconds or documents, whichever come first."""

    seconds: float
    documents: float = math.inf

    def is_over(self, seconds: float, batches: int) -> bool:
        """Return True once so many batches were added in so many seconds."""
        return seconds >= self.seconds or batches * BATCH >= self.documents


def ingest(taken: Taken, add: Callable[[int], object], until: Until, settle: Callable[[], object]) -> None:
    """Add batch after batch until it is over, then settle; counts and times go to `taken`."""
    began, ends = time.perf_counter(), list[float]()
    while not ends or not until.is_over(ends[-1], len(ends)):
        add(len(ends))
        ends.append(time.perf_counter() - began)
    settle()
    count(taken, ends, time.perf_counter() - began)


def count(taken: Taken, ends: Sequence[float], seconds: float) -> None:
    """Note batches by the seconds at which each was in, and the seconds until all were in the index."""
    taken.batches, taken.documents, taken.seconds = len(ends), len(ends) * BATCH, seconds
    taken.longest = float(np.diff([0.0, *ends]).max())
    width = max(ends) / 10
    counts = np.histogram(ends, 10, (0, max(ends)))[0]
    taken.rates = [round(number * BATCH / width, 1) for number in counts.tolist()]
    taken.reached = {str(mark): round(ends[mark // BATCH - 1], 1) for mark in MARKS if mark <= taken.documents}


def ask(taken: Taken, stream: Stream, searches: Mapping[str, Callable[[Any], list[str]]]) -> None:
    """Search with each effort for each query, one after another, and compare with exact search."""
    exact = stream.exact(taken.batches)
    for effort, search in searches.items():
        answers, ms = list[list[str]](), list[float]()
        for query_M in stream.query_QM[:WARM]:
            search(query_M)
        for query_M in stream.query_QM:
            began = time.perf_counter()
            answers.append(search(query_M))
            ms.append(1e3 * (time.perf_counter() - began))
        median, p99 = (round(float(np.percentile(ms, share)), 2) for share in (50, 99))
        recalls = [
            round(float(np.mean([len(got & best) / len(best) for got, best in zip(of, exact_of, strict=True)])), 4)
            for of, exact_of in (
                (list(map(set, answers)), list(map(set, exact))),
                ([set(map(stream.text, ids)) for ids in answers], [set(map(stream.text, ids)) for ids in exact]),
            )
        ]
        taken.searches.append(Asked(effort, median, p99, *recalls))


def weigh(taken: Taken, folder: Path) -> None:
    """Count files below a folder, and their bytes."""
    sizes = sizes_below(folder)
    taken.files, taken.bytes = len(sizes), sum(sizes)


def sizes_below(folder: Path) -> list[int]:
    """Bytes of each file below a folder."""
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file()]


def processors(pid: int) -> float:
    """Seconds of processors that a process has taken; 0 where it is gone."""
    try:
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int, kind: str) -> int:
    """Bytes of a process's memory of a kind of Linux's, such as RssAnon or VmRSS; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(kind)), 0)


@contextmanager
def watched(taken: Taken, pid: int | None = None, *, adds: bool = True) -> Iterator[None]:
    """Watch a process's memory, by default this one's, while the block runs; where it adds, also its processors."""
    over, watched = threading.Event(), os.getpid() if pid is None else pid
    began = processors(watched)

    def watch() -> None:
        while not over.wait(EVERY):
            taken.resident = max(taken.resident, memory_of(watched, "VmRSS"))
            if adds:
                taken.memory = max(taken.memory, memory_of(watched, "RssAnon"))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        taken.cpu += processors(watched) - began if adds else 0.0
        over.set()
        thread.join()
