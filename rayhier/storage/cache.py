"""A cache on this machine: files downloaded from a bucket, and folders computed from files on storage.

Folders are named by content. A folder notes size, times and SHA-256 of its files. If size or times have changed when
the folder is opened, the bytes are checked, and a damaged folder is made again. Above a size limit, the least recently
used computed folders that no process leases are removed. The cache is $RAYHIER_CACHE, else ~/.cache/rayhier.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.files import File
from rayhier.storage.remote import Remote

FILES, LOCK, SIZE = "files.json", "lock", "size"
DAY = 86_400
TOLD = 3
"""Entries of a file's stamp that are stored: size and times. The inode is compared within one process only."""


def fetch(root: Remote, wanted: Sequence[File]) -> Path:
    """Download the `wanted` files of `root` into a folder of the cache. InputError if a file's SHA-256 differs."""

    def fill(folder: Path) -> None:
        for file in wanted:
            source, path = root / file.name, folder / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as opened:
                opened.writelines(source.chunks())
            if files.digest(path) != file.sha256:
                raise InputError(f"{source}: is not the file that was published. Rebuild its stage with --fresh")

    return _lease("fetched", "".join(sorted(f"{file.sha256} {file.name}\n" for file in wanted)), fill).folder


class Lease:
    """A hold on a folder of the cache. No process removes the folder until the lease is released or collected."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
        self.release = weakref.finalize(self, os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_SH)
        os.utime(lock)
        self._files = _stamps(folder)

    @property
    def content(self) -> tuple[object, ...]:
        return (self.folder, *sorted((name, *stamp) for name, stamp in self._files.items()))

    def intact(self) -> bool:
        """Return True if no file was changed or replaced since the folder was leased. Reads no file."""
        return _stamps(self.folder) == self._files


def get_or_build(kind: str, made_of: str, fill: Callable[[Path], None], limit: float = math.inf) -> Lease:
    """Lease the cache folder of a `kind` that was computed from `made_of`. `fill` writes a missing or changed folder.

    The least recently used folders beyond `limit` bytes are removed. InputError if the cache cannot be written.
    """
    try:
        return _lease(kind, made_of, fill, limit)
    except OSError as error:
        raise InputError(
            f"{error.filename or home()}: {error.strerror or error}. Searches need a cache on this machine, in "
            "$RAYHIER_CACHE, else ~/.cache/rayhier; allowed: a folder that is writable and has room"
        ) from None


def _lease(kind: str, made_of: str, fill: Callable[[Path], None], limit: float = math.inf) -> Lease:
    folder = home() / kind / hashlib.sha256(made_of.encode()).hexdigest()[:32]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.parent):
        if _is_complete(folder):
            return Lease(folder)
    return _make(folder, fill, limit)


def _make(folder: Path, fill: Callable[[Path], None], limit: float) -> Lease:
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.tmp")
    with _alone(folder.parent):
        temporary.mkdir()
        mine = Lease(temporary)
    try:
        fill(temporary)
        _note(temporary, {name: files.digest(temporary / name) for name in _stamps(temporary)})
        with _alone(folder.parent):
            if not _is_complete(folder):  # if complete, another process was first
                shutil.rmtree(folder, ignore_errors=True)
                temporary.rename(folder)
            lease = Lease(folder)
            _keep_within(folder.parent, limit, _size(folder))
    finally:
        with _alone(folder.parent):
            shutil.rmtree(temporary, ignore_errors=True)
        mine.release()
    return lease


def _is_complete(folder: Path) -> bool:
    try:
        noted: dict[str, list[Any]] = json.loads((folder / FILES).read_bytes())
        stamps = _stamps(folder)
        changed = [name for name, (stamp, _) in noted.items() if stamps.get(name, [])[:TOLD] != stamp]
        complete = all(stamps[name][0] == noted[name][0][0] for name in changed) and all(
            files.digest(folder / name) == noted[name][1] for name in changed
        )
        if complete and changed:  # copied or touched: note the new times, so that the bytes are not read again
            _note(folder, {name: digest for name, (_, digest) in noted.items()})
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return False
    return complete


def _note(folder: Path, digests: dict[str, str]) -> None:
    stamps = _stamps(folder)
    (folder / FILES).write_text(json.dumps({name: (stamps[name][:TOLD], digests[name]) for name in digests}))


def _stamps(folder: str | Path, prefix: str = "") -> dict[str, list[int]]:
    """Return size, mtime, ctime and inode of each file below a folder, by name. Every write changes the ctime."""
    stamps = dict[str, list[int]]()
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                stamps |= _stamps(entry.path, f"{prefix}{entry.name}/")
            elif entry.name not in (FILES, LOCK):
                status = entry.stat()
                stamps[prefix + entry.name] = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    return stamps


@contextlib.contextmanager
def _alone(kind: Path) -> Iterator[None]:
    """Lock all cache folders of one kind. Until the end, no other process leases, adds or removes one of them."""
    lock = os.open(kind.with_name(f"{kind.name}.{LOCK}"), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _keep_within(kind: Path, limit: float, added: int) -> None:
    """Note the size of an added folder. Sweep if the folders of its kind may exceed `limit` bytes, and once a day."""
    noted, now = kind.with_name(f"{kind.name}.{SIZE}"), time.time()
    try:
        before, swept = map(int, noted.read_text().split())
        total = before + added if 0 <= now - swept < DAY else math.inf
    except (OSError, ValueError):
        total, swept = math.inf, 0
    if total > limit or total == math.inf:
        total, swept = _sweep(kind, limit), int(now)
    with contextlib.suppress(OSError):  # without a readable note, the next process sweeps
        noted.write_text(f"{total} {swept}")


def _sweep(kind: Path, limit: float) -> int:
    """Remove the least recently used folders without a lease, until at most `limit` bytes stay. Returns the size."""
    with os.scandir(kind) as entries:
        sizes = {kind / entry.name: _size(entry) for entry in entries if entry.is_dir()}
    total = sum(sizes.values())
    for folder in sorted(sizes, key=_last_use) if total > limit else []:
        if total > limit and not _has_lease(folder):
            shutil.rmtree(folder, ignore_errors=True)
            total -= sizes[folder]
    return total


def _size(folder: os.PathLike[str]) -> int:
    # A folder that is being filled may change.
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        return sum(entry.stat().st_size for entry in entries)
    return 0


def _last_use(folder: Path) -> float:
    lock = folder / LOCK
    return (lock if lock.exists() else folder).stat().st_mtime


def _has_lease(folder: Path) -> bool:
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def home() -> Path:
    folder = os.environ.get("RAYHIER_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "rayhier"
