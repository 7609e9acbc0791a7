"""Unpublished work: `FP/ATTEMPT/` with a heartbeat, so that a rerun can take over what a dead run left.

`owner.json` holds host, pid and heartbeat. Taking over is a race that one put-if-absent of
`claims/N` decides: N counts the owners so far. What is not meant for readers (ledgers, Ray's
checkpoints, parts) lies below `scratch/` and is gone before the record is published.
"""

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.artifact import RECORD, Artifact, Kind, Place, Record, versions
from rayhier.storage.files import File
from rayhier.storage.paths import Location
from rayhier.storage.seal import seal

OWNER = "owner.json"
CLAIMS = "claims"
SCRATCH = "scratch"
HEARTBEAT_SECONDS = 5.0
SILENT_SECONDS = 60.0


@dataclass(frozen=True)
class Output:
    """What a stage wrote below its attempt."""

    counts: dict[str, Any]
    """For record.json."""
    files: tuple[File, ...] = ()
    """Files whose digest was taken when they were written; publishing hashes the others."""


class Attempt:
    """A folder to write below, owned by this process until it is published or left.

    Use as a context manager; leaving it without `publish` releases the folder for the next run.
    """

    def __init__(self, place: Place, root: Location, claim: int) -> None:
        self.place = place
        self.root = root
        self.scratch = root / SCRATCH
        self._claim = claim
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._began = time.monotonic()

    @classmethod
    def start(cls, place: Place, clock: Callable[[], float] = time.time) -> Self:
        """Adopt an attempt whose owner is gone, else begin a new one."""
        for root in _attempts(place.folder):
            claim = _claim(root, clock)
            if claim is not None and not _is_published(place, root):
                return cls(place, root, claim)
        root = place.folder / f"attempt-{uuid.uuid4().hex[:8]}"
        _take(root, 0)
        return cls(place, root, 0)

    def __enter__(self) -> Self:
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._write_owner(os.getpid())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rest()
        if self._mine():
            self._write_owner(0)

    def publish(self, kind: Kind, inputs: dict[str, str], made: Output) -> Artifact:
        """Publish every file below `root` but scratch. The first of racing runs wins; all return its artifact."""
        self._check_mine()
        files.remove(self.scratch)
        entries = {file.name: file for file in made.files}
        for name in files.below(self.root):
            hidden = name == OWNER or name.startswith((f"{CLAIMS}/", f"{SCRATCH}/")) or name.endswith(".tmp")
            if not hidden and name not in entries:
                entries[name] = files.describe(self.root, name)
        record = Record(
            kind=kind,
            fingerprint=self.place.folder.name,
            attempt=self.root.name,
            inputs=inputs,
            files=[entries[name] for name in sorted(entries)],
            counts=made.counts,
            versions=versions(),
            seconds=round(time.monotonic() - self._began, 3),
        )
        self._check_mine()
        files.create(self.place.folder / RECORD, seal(record.model_dump(mode="json")))
        self._rest()
        artifact = Artifact.open(self.place.folder)
        self._sweep(artifact)
        return artifact

    def _sweep(self, artifact: Artifact) -> None:
        """Remove what nobody will read: this attempt where it lost, and attempts of the dead."""
        for root in _attempts(self.place.folder):
            if root != artifact.root and (root == self.root or _claim(root, time.time) is not None):
                files.remove(root)

    def _check_mine(self) -> None:
        if not self._mine():
            raise InputError(
                f"{self.root}: another run took this attempt over or removed it; nothing of it was published"
            )

    def _rest(self) -> None:
        """No heartbeat from here on: one more would bring a removed folder back."""
        self._stop.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(OSError):
                if self._mine():
                    self._write_owner(os.getpid())

    def _mine(self) -> bool:
        """Not while another run claimed the folder, nor once it was removed."""
        claims = self.root / CLAIMS
        return (claims / str(self._claim)).exists() and not (claims / str(self._claim + 1)).exists()

    def _write_owner(self, pid: int) -> None:
        owner = {
            "host": socket.gethostname(),
            "pid": pid,
            "started": _started(pid),
            "heartbeat": time.time(),
            "claim": self._claim,
        }
        files.write_json(self.root / OWNER, owner)


def _attempts(folder: Location) -> list[Location]:
    return sorted((path for path in folder.glob("attempt-*") if path.is_dir()), key=str)


def _is_published(place: Place, root: Location) -> bool:
    """Whether readers rely on this attempt. To be asked after the claim: its owner may have published just before."""
    artifact = place.published()
    return artifact is not None and artifact.root == root


def _claim(root: Location, clock: Callable[[], float]) -> int | None:
    """The number under which this process now owns a dead attempt; None where it is alive or lost to another."""
    try:
        newest = max((path for path in (root / CLAIMS).iterdir()), key=lambda path: int(path.name))
        heard, gone = newest.stat().st_mtime, False
    except (OSError, ValueError):
        return None
    try:
        owner = files.read_json(root / OWNER)
        if int(owner["claim"]) == int(newest.name):
            heard = float(owner["heartbeat"])
            gone = owner["host"] == socket.gethostname() and not _alive(int(owner["pid"]), owner["started"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # its owner died before it said who it is: the claim's own age tells
    if not gone and clock() - heard <= SILENT_SECONDS:
        return None
    claim = int(newest.name) + 1
    return claim if _take(root, claim) else None


def _take(root: Location, claim: int) -> bool:
    """The race. What is written differs between racers: see `files.create`."""
    return files.create(root / CLAIMS / str(claim), uuid.uuid4().bytes)


def _alive(pid: int, started: str) -> bool:
    return pid > 0 and _started(pid) == started != ""


def _started(pid: int) -> str:
    """When the process began, so that a pid used again is told apart; "" where there is none."""
    if pid <= 0:
        return ""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return _started_elsewhere(pid)
    return "" if fields[0] in "ZX" else fields[19]


def _started_elsewhere(pid: int) -> str:
    """Systems without /proc tell only whether the process lives."""
    if Path("/proc/self").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "running"
