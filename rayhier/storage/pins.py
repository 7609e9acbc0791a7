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
from rayhier.storage.leaf_map import LeafMap, now, versions
from rayhier.storage.paths import Location

PINS = "pins"
READS, WRITES = "v", "w"
"""What the name of a pin begins with."""
SECONDS = 300.0
RENEWALS = 5
"""In the time that a pin holds."""


@contextlib.contextmanager
def reading(root: Location, version: int | None = None) -> Iterator[LeafMap]:
    """A version, the newest where none is given, opened, and kept as long as the block lasts.

    Who cannot write below `root` reads unprotected. InputError where there is no such version.
    """
    while True:
        leaf_map = LeafMap.open(root, version)
        own = leaf_map.manifest.version
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):
                held.enter_context(pinned(root, own))
            # A vacuum may have looked for pins before there was this one: then the version is gone, or put back by it.
            if own in versions(root):
                yield leaf_map
                return


@contextlib.contextmanager
def pinned(root: Location, version: int, seconds: float = SECONDS, *, writes: bool = False) -> Iterator[None]:
    """Keep a version as long as the block lasts; a thread renews the pin.

    Where the block `writes`, files that no manifest names yet are kept as well.
    """
    name = f"{WRITES if writes else READS}{version:06d}-{uuid.uuid4().hex[:12]}.json"
    path, stop = root / PINS / name, threading.Event()

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
        if thread is not threading.current_thread():  # whose garbage collection may end the block
            thread.join()
        with contextlib.suppress(OSError):  # it ends by itself, and what the block did is done
            path.unlink(missing_ok=True)


def held(root: Location) -> set[int]:
    """Versions that someone reads now; a pin that cannot be read counts."""
    return {version for path, version in _every(root) if _holds(path)}


def writing(root: Location) -> bool:
    """Whether someone writes files now that no manifest names yet."""
    return any(path.name.startswith(WRITES) and _holds(path) for path, _ in _every(root))


def sweep(root: Location) -> None:
    """Remove the pins of readers and writers that are gone."""
    for path, _ in _every(root):
        if not _holds(path):
            path.unlink(missing_ok=True)


def _every(root: Location) -> list[tuple[Location, int]]:
    """All pins, and the version of each."""
    found = []
    for kind in (READS, WRITES):
        for path in (root / PINS).glob(f"{kind}*.json"):
            number = path.name.removeprefix(kind).partition("-")[0]
            if number.isdigit():
                found.append((path, int(number)))
    return found


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
