"""The lease of an index's Writer, so that only one server at a time appends to the change log.

A lease is a file `log/writer-NNNNNN.json`. The number is the Writer's epoch. The lease with the highest number holds
until its time is over or its process has ended. A new Writer takes the next number by put-if-absent, and a Writer that
finds a higher number stops. A lease only tells who may write. The log itself refuses a Writer whose epoch is over,
because each append looks for later leases (`ChangeLog.append`).
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.change_log import EPOCH, LOG, epoch_of
from rayhier.storage.leaf_map import now
from rayhier.storage.liveness import Process, repeating
from rayhier.storage.paths import Location

SECONDS = 15.0
RENEWALS = 5
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Clock that goes on while the machine is suspended, if the system has such a clock."""


@dataclass(frozen=True)
class LeaseRecord:
    number: int
    process: Process
    until: float

    @property
    def holds(self) -> bool:
        """True until the lease's time is over or its process has ended. False if a wrong clock made the time long."""
        return now() < self.until <= now() + 2 * SECONDS and not self.process.has_ended


@dataclass
class Held:
    epoch: int
    seconds: float
    renewed: float = field(default_factory=lambda: clock())
    lost: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> bool:
        """Return True if no other Writer took over, and this process renewed the lease in time by its own clock."""
        return not self.lost.is_set() and clock() < self.renewed + self.seconds


class WrittenError(InputError):
    """A Writer's lease on the index still holds. The lease will end."""


def refuse_while_written(root: Location) -> LeaseRecord | None:
    """Return the newest lease on the index below `root`. WrittenError if the lease holds."""
    lease = newest(root)
    if lease is not None and lease.holds:
        raise WrittenError(
            f"{root}: a server writes to this index (process {lease.process.pid} of {lease.process.host}). Nothing was "
            "changed; allowed: one writer at a time. Send changes to that server, or stop it"
        )
    return lease


def fence(root: Location) -> None:
    """Take and end an index's lease, so that earlier Writers answer no change. WrittenError if a lease still holds."""
    with leased(root):
        pass


def newest_epoch(root: Location) -> int:
    return max((number for number, _ in _leases(root)), default=0)


def newest(root: Location) -> LeaseRecord | None:
    """Read the newest lease. None if nobody ever wrote. The time of an unreadable lease counts from its last change."""
    for number, path in sorted(_leases(root), reverse=True):
        try:
            saved: dict[str, Any] = files.read_json(path)
            return LeaseRecord(number, Process(**saved["process"]), float(saved["until"]))
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            return LeaseRecord(number, Process(0, "unknown", None, None), path.stat().st_mtime + SECONDS)
    return None


def _leases(root: Location) -> list[tuple[int, Location]]:
    return [(epoch, root / LOG / name) for name in files.names(root / LOG, after=EPOCH) if (epoch := epoch_of(name))]


@contextlib.contextmanager
def leased(root: Location, seconds: float = SECONDS) -> Iterator[Held]:
    """Take the lease during the block, and renew it for `seconds` at a time. InputError if another lease holds."""
    before = refuse_while_written(root)
    held = Held(1 if before is None else before.number + 1, seconds)
    path = root / LOG / f"{EPOCH}{held.epoch:06d}.json"
    # The name may be free again. In this case a later lease exists already.
    if not files.create(path, _bytes(seconds)) or newest_epoch(root) > held.epoch:
        raise WrittenError(f"{path}: another writer took it at this moment. Nothing was changed. Start again")
    if before is not None:
        (root / LOG / f"{EPOCH}{before.number:06d}.json").unlink(missing_ok=True)

    def renew() -> None:
        began = clock()
        if newest_epoch(root) > held.epoch:
            held.lost.set()
        if not held.lost.is_set():
            files.rewrite(path, _bytes(seconds))  # not `replace`, which would bring back a removed lease
            held.renewed = began

    try:
        with repeating(renew, seconds / RENEWALS):
            yield held
    finally:
        if not held.lost.is_set():
            with contextlib.suppress(OSError):  # the lease ends by itself, and its number stays the highest
                files.rewrite(path, _bytes(0.0))


def _bytes(seconds: float) -> bytes:
    return files.to_json({"until": now() + seconds, "process": asdict(Process.here())})


def clock() -> float:
    return time.clock_gettime(CLOCK)
