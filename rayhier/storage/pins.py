"""Pins: small files that protect a version of a leaf map, and the files it lists, from vacuum.

A reader renews its pin while it reads. The pin of a dead reader expires.
"""

import contextlib
import os
import socket
import uuid
from collections.abc import Iterator

from rayhier.storage import files
from rayhier.storage.leaf_map import LeafMap, now, versions
from rayhier.storage.liveness import repeating
from rayhier.storage.paths import Location

PINS = "pins"
READS, WRITES = "v", "w"
SECONDS = 300.0
RENEWALS = 5


@contextlib.contextmanager
def reading(root: Location, version: int | None = None) -> Iterator[LeafMap]:
    """Open a version of the leaf map (None: the newest) and pin it, unless this process cannot write below `root`."""
    while True:
        leaf_map = LeafMap.open(root, version)
        number = leaf_map.manifest.version
        with contextlib.ExitStack() as pin:
            with contextlib.suppress(OSError):
                pin.enter_context(pinned(root, number))
            # A vacuum that listed pins before this pin was written has removed the version, or restored it.
            if number in versions(root):
                yield leaf_map
                return


@contextlib.contextmanager
def pinned(root: Location, version: int, *, writes: bool = False) -> Iterator[None]:
    """Pin a version during the block. With `writes`, a vacuum also keeps files that no manifest lists yet."""
    name = f"{WRITES if writes else READS}{version:06d}-{uuid.uuid4().hex[:12]}.json"
    path = root / PINS / name
    _write(path)
    try:
        with repeating(lambda: _write(path), SECONDS / RENEWALS):
            yield
    finally:
        with contextlib.suppress(OSError):  # the pin expires by itself
            path.unlink(missing_ok=True)


def held(root: Location) -> set[int]:
    """Return the versions that are pinned now. An unreadable pin file counts as a pin."""
    return {version for _, version in _pins(root)}


def written(root: Location) -> list[int]:
    """Return the versions on which writers base new versions at this moment."""
    return [version for path, version in _pins(root) if path.name.startswith(WRITES)]


def sweep(root: Location) -> None:
    for path, _ in _pins(root, expired=True):
        path.unlink(missing_ok=True)


def _pins(root: Location, *, expired: bool = False) -> Iterator[tuple[Location, int]]:
    for kind in (READS, WRITES):
        for path in (root / PINS).glob(f"{kind}*.json"):
            number = path.name.removeprefix(kind).partition("-")[0]
            if number.isdigit() and _holds(path) != expired:
                yield path, int(number)


def _write(path: Location) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    who = {"until": now() + SECONDS, "host": socket.gethostname(), "pid": os.getpid()}
    files.replace(path, files.to_json(who), durable=False)  # a flush takes longer than the rest of opening a version


def _holds(path: Location) -> bool:
    """Return True if a pin has not expired. A pin of unreadable JSON expires by its file's date."""
    try:
        try:
            return float(files.read_json(path)["until"]) > now()
        except (ValueError, KeyError, TypeError):
            return path.stat().st_mtime + SECONDS > now()
    except FileNotFoundError:
        return False
    except OSError:
        return True
