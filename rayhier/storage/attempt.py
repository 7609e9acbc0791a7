"""Unpublished work: folders `FINGERPRINT/ATTEMPT/` with a heartbeat. A new run can continue the work of a dead run.

`owner.json` holds host, pid and heartbeat. To take over an attempt, a run creates `claims/N` by a put-if-absent, which
succeeds for one run only. N is the number of earlier owners. Notes of finished parts and Ray's checkpoints lie in
`scratch/`, which is removed before the record is published.
"""

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.artifact import RECORD, Artifact, Kind, Place, Record, versions
from rayhier.storage.files import File, seal
from rayhier.storage.liveness import repeating, started
from rayhier.storage.paths import Location

OWNER = "owner.json"
CLAIMS = "claims"
SCRATCH = "scratch"
HEARTBEAT_SECONDS = 5.0
SILENT_SECONDS = 60.0
"""Seconds without a heartbeat after which the owner of an attempt counts as dead."""


@dataclass(frozen=True)
class Output:
    counts: dict[str, Any]
    files: tuple[File, ...] = ()
    """Files whose SHA-256 is known from writing them. `publish` reads and hashes all other files."""
    device: str = "CPU"


class Attempt:
    """A folder for a stage's files. If a `with` block ends without `publish`, the next run may continue there."""

    def __init__(self, place: Place, root: Location, claim: int) -> None:
        self.place = place
        self.root = root
        self.scratch = root / SCRATCH
        self._claim = claim
        self._heart = contextlib.ExitStack()
        self._began = time.monotonic()

    @classmethod
    def start(cls, place: Place, clock: Callable[[], float] = time.time) -> Self:
        """Take over an unpublished attempt whose owner is dead, else begin a new attempt."""
        for root in _attempts(place.folder):
            claim = _claim(root, clock)
            if claim is not None:
                artifact = place.published()  # read after the claim, because the owner may just have published
                if artifact is None or artifact.root != root:
                    return cls(place, root, claim)
        root = place.folder / f"attempt-{uuid.uuid4().hex[:8]}"
        _take(root, 0)
        return cls(place, root, 0)

    def __enter__(self) -> Self:
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._write_owner(os.getpid())
        self._heart.enter_context(repeating(self._beat, HEARTBEAT_SECONDS))
        return self

    def __exit__(self, *_: object) -> None:
        self._heart.close()
        if self._mine():
            self._write_owner(0)

    @property
    def is_new(self) -> bool:
        return self._claim == 0

    def publish(self, kind: Kind, inputs: dict[str, str], output: Output) -> Artifact:
        """Publish the files, or open what another run published first. InputError if a run took over the attempt."""
        self._check_mine()
        files.remove(self.scratch)
        entries = {file.name: file for file in output.files}
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
            counts=output.counts,
            versions=versions(),
            seconds=round(time.monotonic() - self._began, 3),
            device=output.device,
        )
        self._check_mine()
        files.create(self.place.folder / RECORD, seal(record.model_dump(mode="json")))
        self._heart.close()  # another heartbeat would bring the removed folder back
        artifact = Artifact.open(self.place.folder)
        self._sweep(artifact)
        return artifact

    def _sweep(self, artifact: Artifact) -> None:
        """Remove attempts that nobody will read: of dead runs, and this attempt if another run published first."""
        for root in _attempts(self.place.folder):
            if root != artifact.root and (root == self.root or _claim(root, time.time) is not None):
                files.remove(root)

    def _check_mine(self) -> None:
        if not self._mine():
            raise InputError(
                f"{self.root}: another run took this attempt over or removed it. This run published nothing from it"
            )

    def _beat(self) -> None:
        if self._mine():
            self._write_owner(os.getpid())

    def _mine(self) -> bool:
        claims = self.root / CLAIMS
        return (claims / str(self._claim)).exists() and not (claims / str(self._claim + 1)).exists()

    def _write_owner(self, pid: int) -> None:
        owner = {
            "host": socket.gethostname(),
            "pid": pid,
            "started": started(pid) if pid else None,
            "heartbeat": time.time(),
            "claim": self._claim,
        }
        files.write_json(self.root / OWNER, owner)


def _attempts(folder: Location) -> list[Location]:
    return sorted((path for path in folder.glob("attempt-*") if path.is_dir()), key=str)


def _claim(root: Location, clock: Callable[[], float]) -> int | None:
    """Claim a dead run's attempt and return the claim's number. None if the owner lives or another run was first."""
    try:
        newest = max((path for path in (root / CLAIMS).iterdir()), key=lambda path: int(path.name))
        heard, is_dead = newest.stat().st_mtime, False
    except (OSError, ValueError):
        return None
    try:
        owner = files.read_json(root / OWNER)
        if int(owner["claim"]) == int(newest.name):
            heard = float(owner["heartbeat"])
            has_ended = not owner["started"] or started(int(owner["pid"])) != owner["started"]
            is_dead = owner["host"] == socket.gethostname() and has_ended
    except (OSError, ValueError, KeyError, TypeError):
        pass  # the owner died before it wrote owner.json: the claim's age decides
    if not is_dead and clock() - heard <= SILENT_SECONDS:
        return None
    claim = int(newest.name) + 1
    return claim if _take(root, claim) else None


def _take(root: Location, claim: int) -> bool:
    return files.create(root / CLAIMS / str(claim), uuid.uuid4().bytes)
