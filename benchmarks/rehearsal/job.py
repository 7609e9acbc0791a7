"""Watch the job: its stages, the largest process of each, and a driver and a node that are killed meanwhile."""

import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import below, pss, watching
from benchmarks.rehearsal.nodes import Cluster, drivers
from rayhier.progress import say

STAGES = ("corpus", "embed", "test", "train", "index", "calibrate", "evaluate")
LINE = re.compile(rf"^({'|'.join(STAGES)})(?: seed 0)? +(?:([\d.]+) s|published) ")
"""What a run prints when a stage is done: its seconds, or that it was published before."""
POLL, EVERY = 0.05, 1.0
"""Seconds between two looks at the job's lines and parts, and at the memory of all processes."""
DONE = 0.3
"""Share of a stage's parts that are done when somebody is killed."""
MOST_SUBMISSIONS = 5


class Memory:
    """Bytes (PSS) of the largest process below this one, by what is done meanwhile."""

    def __init__(self) -> None:
        self.at = ""
        """What is being done."""
        self.largest: dict[str, int] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at all processes again and again while the block runs."""

        def look() -> None:
            at, root = self.at, os.getpid()
            size = max((pss(pid) for pid in below(root) if pid != root), default=0)
            self.largest[at] = max(size, self.largest.get(at, 0))

        with watching(look, EVERY):
            yield


@dataclass
class Kill:
    """Who was killed, when, and how the run went on."""

    victim: str
    stage: str
    at: float
    done: int
    """Parts of the stage that were done, of `parts`."""
    parts: int
    again: bool = False
    """True where the job had to be submitted again."""
    stood: float = 0.0
    """Longest time after the kill, in seconds, in which no further part was done."""

    def line(self) -> str:
        """What happened, as a sentence."""
        went = "The job was submitted again and went on from its ledger."
        if not self.again:
            went = f"The job went on by itself. For {self.stood:.0f} s, no further part was done."
        return f"The {self.victim} was killed in stage {self.stage}, after {self.done} of {self.parts} parts. {went}"


@dataclass
class Job:
    """A job that is submitted until it has succeeded, on a cluster that loses the driver once and a node once."""

    cluster: Cluster
    command: Sequence[str]
    workdir: Path
    log: Path
    memory: Memory
    strikes: bool = True
    """False if nothing is killed."""
    kills: list[Kill] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Stage -> seconds that the run printed for it."""
    unfinished: dict[str, float] = field(default_factory=dict)
    """Stage -> seconds that submissions worked on it which did not finish it."""
    submissions: int = 0
    _begun: float = 0.0
    """When the stage that the job is at began."""
    _moved: tuple[int, float] = (0, 0.0)
    """Parts of the struck stage that are done, and when the last was."""

    def run(self) -> None:
        """Submit until it succeeds."""
        while not self._submit():
            if self.submissions == MOST_SUBMISSIONS:
                sys.exit(f"the job did not succeed in {MOST_SUBMISSIONS} submissions: {self.log}")

    def took(self, stage: str) -> float:
        """Seconds that a stage was at work: those of submissions that did not finish it count, standstills do not."""
        stood = sum(kill.stood for kill in self.kills if kill.stage == stage and not kill.again)
        return self.seconds[stage] + self.unfinished.get(stage, 0.0) - stood

    def _submit(self) -> bool:
        """Submit once and follow to the end; returns True if the job succeeded."""
        self.memory.at = "submission"
        self.cluster.wait()
        self.memory.at, self._begun = STAGES[0], time.time()
        self.submissions += 1
        killed = len(self.kills)
        with self.log.open("ab") as log, self.log.open() as lines:
            lines.seek(0, os.SEEK_END)
            process = self.cluster.submit(self.command, log)
            while process.poll() is None:
                for line in lines:
                    self._read(line)
                self._strike("embed", "vectors", "driver", self._kill_driver)
                self._strike("index", "index", "node", self._replace_node)
                time.sleep(POLL)
            for line in lines:
                self._read(line)
        if process.returncode == 0:
            return True
        mine = self.kills[killed:]
        ended = mine[-1].at if mine and mine[-1].victim == "driver" else time.time()
        if (stage := self.memory.at) in STAGES:
            self.unfinished[stage] = self.unfinished.get(stage, 0.0) + ended - self._begun
        for kill in mine:
            kill.again = True
        if not mine:
            sys.exit(f"the job failed though nobody was killed: {self.log}")
        return False

    def _read(self, line: str) -> None:
        """Take note of a stage that begins or is done."""
        if (found := LINE.match(line)) is None:
            return
        stage, seconds = found.groups()
        if seconds is not None:
            self.seconds[stage] = float(seconds)
        if stage == STAGES[-1] or self.memory.at in STAGES[STAGES.index(stage) + 1 :]:
            return  # a job that failed has its last lines told once more
        self.memory.at, self._begun = STAGES[STAGES.index(stage) + 1], time.time()
        say(f"  {self.memory.at}")

    def _strike(self, stage: str, kind: str, victim: str, kill: Callable[[], None]) -> None:
        """Kill a victim once, when a share of a stage's parts is done; from then on note how long nothing is done."""
        if self.memory.at != stage or not self.strikes:
            return
        now, done = time.time(), len(list(self.workdir.glob(f"{kind}/*/attempt-*/scratch/ledger/*.json")))
        struck = next((one for one in self.kills if one.victim == victim), None)
        if struck is not None:
            count, since = self._moved
            if done:  # else all is done and published
                struck.stood = max(struck.stood, now - since)
            self._moved = (done, now if done != count else since)
            return
        parts = len(list(self.workdir.glob("corpus/*/attempt-*/documents/*")))
        if done >= math.ceil(DONE * parts):
            self.kills.append(Kill(victim, stage, now, done, parts))
            self._moved = (done, now)
            kill()
            say(f"  {victim} killed, {done} of {parts} parts done")

    def _kill_driver(self) -> None:
        for pid in drivers(self.workdir):
            os.kill(pid, signal.SIGKILL)

    def _replace_node(self) -> None:
        self.cluster.kill_node()
        self.cluster.add_node()
