"""Who reads which version: a pin keeps a version, and every file it needs, from being vacuumed.

A pin is a file that says until when it holds. Readers that stay longer renew it; those that die are forgotten.
"""

import contextlib
import os
import socket
import threading
import uuid
from collections.abc import Iterator

from rayhier.storage import files
from rayhier.storage.leaf_map import now
from rayhier.storage.paths import Location

PINS = "pins"
SECONDS = 300.0
RENEWALS = 5
"""In the time that a pin holds."""


@contextlib.contextmanager
def pinned(root: Location, version: int, seconds: float = SECONDS) -> Iterator[None]:
    """Keep a version as long as the block lasts; a thread renews the pin."""
    path, stop = root / PINS / f"v{version:06d}-{uuid.uuid4().hex[:12]}.json", threading.Event()

    def renew() -> None:
        while not stop.wait(seconds / RENEWALS):
            with contextlib.suppress(OSError):
                _write(path, seconds)

    _write(path, seconds)
    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        path.unlink(missing_ok=True)


def held(root: Location) -> set[int]:
    """Versions that someone reads now; a pin that cannot be read counts."""
    found = set()
    for path in (root / PINS).glob("v*.json"):
        number = path.stem[1:].partition("-")[0]
        if number.isdigit() and _holds(path):
            found.add(int(number))
    return found


def sweep(root: Location) -> None:
    """Remove the pins of readers that are gone."""
    every: list[Location] = list((root / PINS).glob("v*.json"))
    for path in every:
        if not _holds(path):
            path.unlink(missing_ok=True)


def _write(path: Location, seconds: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    who = {"until": now() + seconds, "host": socket.gethostname(), "pid": os.getpid()}
    files.write_json(path, who)


def _holds(path: Location) -> bool:
    try:
        return float(files.read_json(path)["until"]) > now()
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError):
        return True
