"""The lease of an index's Writer: one server at a time appends to the change log.

A lease is a file `log/writers/NNNNNN.json`; the highest number counts, until its time is over or its process is gone.
A new Writer takes the next number by put-if-absent, and one that finds a higher number than its own writes no more.
That no two changes get one number does not depend on leases, but on the log itself.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.change_log import LOG
from rayhier.storage.leaf_map import now
from rayhier.storage.paths import Location

WRITERS = "writers"
SECONDS = 15.0
"""Seconds for which a lease holds after it was taken or renewed."""
RENEWALS = 5
"""Times that a lease is renewed in these seconds."""


@dataclass(frozen=True)
class Lease:
    """Who writes, and until when."""

    number: int
    host: str
    pid: int
    until: float

    @property
    def holds(self) -> bool:
        """True while the lease counts: its time is not over, and its process, where it is of this machine, lives."""
        if self.until <= now():
            return False
        return self.host != socket.gethostname() or _lives(self.pid)


def refuse_while_written(root: Location) -> None:
    """Raise InputError where a Writer's lease on the index below `root` holds."""
    lease = newest(root)
    if lease is not None and lease.holds:
        raise InputError(
            f"{root}: a server writes to this index (process {lease.pid} of {lease.host}); allowed: one writer at a "
            "time: send changes to that server, or stop it; nothing was changed"
        )


def newest(root: Location) -> Lease | None:
    """Read the lease that counts; None where nobody ever wrote. One that cannot be read counts from its last change."""
    names = sorted(path.name for path in (root / LOG / WRITERS).glob("*.json"))
    for path in (root / LOG / WRITERS / name for name in reversed(names)):
        try:
            saved = files.read_json(path)
            return Lease(int(path.stem), str(saved["host"]), int(saved["pid"]), float(saved["until"]))
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            return Lease(int(path.stem), "unknown", 0, path.stat().st_mtime + SECONDS)
    return None


@contextlib.contextmanager
def leased(root: Location, seconds: float = SECONDS) -> Iterator[Callable[[], bool]]:
    """Take the lease during the block, for `seconds` at a time; a thread renews it.

    Yields a function that returns True while no other Writer can have taken over: none did, and the lease was renewed
    in time by this process's own clock. InputError where another's lease holds.
    """
    refuse_while_written(root)
    before = newest(root)
    number = 1 if before is None else before.number + 1
    path, stop, lost = root / LOG / WRITERS / f"{number:06d}.json", threading.Event(), threading.Event()
    renewed = time.monotonic()
    if not files.create(path, files.to_json(_who(seconds))):
        refuse_while_written(root)
        raise InputError(f"{path}: another writer took it at this moment; nothing was changed; start again")
    if before is not None:
        (root / LOG / WRITERS / f"{before.number:06d}.json").unlink(missing_ok=True)

    def renew() -> None:
        nonlocal renewed
        while not stop.wait(seconds / RENEWALS):
            with contextlib.suppress(OSError):
                there = newest(root)
                if there is not None and there.number > number:
                    lost.set()
                    return
                began = time.monotonic()
                files.write_json(path, _who(seconds))
                renewed = began

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield lambda: not lost.is_set() and time.monotonic() < renewed + seconds
    finally:
        stop.set()
        thread.join()
        if not lost.is_set():
            with contextlib.suppress(OSError):  # it ends by itself; the number stays the highest
                files.write_json(path, _who(0.0))


def _who(seconds: float) -> dict[str, object]:
    return {"until": now() + seconds, "host": socket.gethostname(), "pid": os.getpid()}


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
