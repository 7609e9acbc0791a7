"""Pins: small files that keep a version of a leaf map, and the files it lists, from being removed by a vacuum.

A reader renews its pin while it reads. The pin of a dead reader expires.
"""

import contextlib
import math
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
SECONDS = 300.0
"""Seconds for which a pin holds after it is written or renewed."""
RENEWALS = 5


@contextlib.contextmanager
def reading(root: Location, version: int | None = None) -> Iterator[LeafMap]:
    """Open a version of the leaf map (None: the newest) and pin it during the block.

    A process that cannot write below `root` reads without a pin. InputError if there is no such version.
    """
    while True:
        leaf_map = LeafMap.open(root, version)
        number = leaf_map.manifest.version
        with contextlib.ExitStack() as pin:
            with contextlib.suppress(OSError):
                pin.enter_context(pinned(root, number))
            # A vacuum may have listed pins before this one was written: then it removed the version, or restored it.
            if number in versions(root):
                yield leaf_map
                return


@contextlib.contextmanager
def pinned(root: Location, version: int, seconds: float = SECONDS, *, writes: bool = False) -> Iterator[None]:
    """Pin a version of the leaf map during the block, for `seconds` at a time. A thread renews the pin.

    With `writes`, a vacuum also keeps files that no manifest lists yet.
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
        if thread is not threading.current_thread():  # garbage collection in the pin's own thread may end the block
            thread.join()
        with contextlib.suppress(OSError):  # the pin expires by itself
            path.unlink(missing_ok=True)


def held(root: Location) -> set[int]:
    """Return the numbers of the versions that are pinned now. An unreadable pin file counts as a pin."""
    return {version for path, version in _every(root) if _holds(path)}


def oldest_written(root: Location) -> float:
    """Return the number of the oldest version from which a writer now makes another version, or infinity.

    Later numbers must not be free again, so that the writer learns if the number that it wants was taken.
    """
    return min(
        (version for path, version in _every(root) if path.name.startswith(WRITES) and _holds(path)), default=math.inf
    )


def writing(root: Location) -> bool:
    """Return True if a writer has a pin now. Then files that no manifest lists may belong to its next version."""
    return any(path.name.startswith(WRITES) and _holds(path) for path, _ in _every(root))


def sweep(root: Location) -> None:
    for path, _ in _every(root):
        if not _holds(path):
            path.unlink(missing_ok=True)


def _every(root: Location) -> list[tuple[Location, int]]:
    pins = []
    for kind in (READS, WRITES):
        for path in (root / PINS).glob(f"{kind}*.json"):
            number = path.name.removeprefix(kind).partition("-")[0]
            if number.isdigit():
                pins.append((path, int(number)))
    return pins


def _write(path: Location, seconds: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    who = {"until": now() + seconds, "host": socket.gethostname(), "pid": os.getpid()}
    files.replace(path, files.to_json(who), durable=False)  # a flush takes longer than the rest of opening a version


def _holds(path: Location) -> bool:
    """Return True if a pin has not expired. Unreadable JSON, as after a power cut, counts from the file's date."""
    try:
        try:
            return float(files.read_json(path)["until"]) > now()
        except (ValueError, KeyError, TypeError):
            return path.stat().st_mtime + SECONDS > now()
    except FileNotFoundError:
        return False
    except OSError:
        return True
