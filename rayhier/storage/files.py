"""Reads and writes files, on this machine or in a bucket. A file becomes visible with all its bytes, or not at all."""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from rayhier.spec import InputError
from rayhier.storage.paths import Location
from rayhier.storage.remote import Remote

CHUNK_BYTES = 1 << 20
ZEROS = b"0" * 64
HEAD = re.compile(rb'\{\n "sha256": "([0-9a-f]{64})",\n')
T = TypeVar("T")


class File(BaseModel, frozen=True, extra="forbid"):
    """A file of an artifact, with its name below the artifact's folder."""

    name: str
    bytes: int
    sha256: str


def create(path: Location, data: bytes) -> bool:
    """Write a file if its name is free (put-if-absent). Returns False if the name exists.

    Competing writers must write different data. OSError if storage refused the file, or cannot ensure that the file
    survives a power cut. Other processes may see the file even after such an OSError.
    """
    if isinstance(path, Remote):
        return path.create(data)
    _make_folder(path.parent)
    temporary = _beside(path)
    try:
        temporary.write_bytes(data)
        _flush(temporary)
        try:
            os.link(temporary, path)
        except FileExistsError:
            is_new = temporary.stat().st_nlink > 1  # NFS may repeat a link that has succeeded
        else:
            is_new = True
    finally:
        temporary.unlink(missing_ok=True)
    _flush_folder(path.parent)  # even if the name exists, because the flush after its put may have failed
    return is_new


def replace(path: Location, data: bytes, *, durable: bool = True) -> None:
    """Write `data` to `path` in one step. If not `durable`, a power cut may undo the change."""
    if isinstance(path, Remote):
        path.write_bytes(data)
    else:
        write(path, lambda temporary: temporary.write_bytes(data), durable=durable)


def rewrite(path: Location, data: bytes) -> None:
    """Replace the bytes of an existing file, not in one step. FileNotFoundError if a local file is gone."""
    if isinstance(path, Remote):
        path.write_bytes(data)
        return
    with path.open("r+b") as opened:
        opened.write(data)
        opened.truncate()


def write(path: Location, fill: Callable[[Path], T], *, durable: bool = True) -> T:
    """Let `fill` write a temporary local file, then move it to `path` in one step. Returns the result of `fill`."""
    if isinstance(path, Remote):
        with tempfile.TemporaryDirectory() as folder:
            result = fill(Path(folder) / path.name)
            path.upload(Path(folder) / path.name)
        return result
    _make_folder(path.parent)
    temporary = _beside(path)
    try:
        result = fill(temporary)
        if durable:
            _flush(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        _flush_folder(path.parent)
    return result


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")


def _flush(path: Path) -> None:
    """Flush a file's bytes, or a folder's names, to the device, so that published files survive a power cut."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _flush_folder(folder: Path) -> None:
    try:
        _flush(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _flush_folder(folder.parent)


def names(folder: Location, after: str = "") -> list[str]:
    """List the names of files in a folder that sort after a name, ascending."""
    if isinstance(folder, Remote):
        return sorted(folder.below(after))
    try:
        return sorted(name for name in os.listdir(folder) if name > after)  # noqa: PTH208  ten times as fast
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def filling(folder: Location) -> Iterator[Path]:
    """Yield a local folder to write in. For a bucket, the written files are uploaded unless an error ends the block."""
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)
        for name in below(Path(temporary)):
            (folder / name).upload(Path(temporary) / name)


def below(folder: Location) -> list[str]:
    """List the names, relative to `folder`, of the files in it at any depth, sorted."""
    if isinstance(folder, Remote):
        return sorted(folder.below())
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def remove(folder: Location) -> None:
    """Remove a folder with its files. Files that cannot be removed are left without an error."""
    if isinstance(folder, Remote):
        with contextlib.suppress(OSError):
            folder.remove_below()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def probe(folder: Location) -> None:
    """Raise OSError unless a run can write and publish in `folder`."""
    path = folder / f".writable-{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    replace(path, b"")
    try:
        if create(path, b"again"):
            raise OSError(errno.ENOTSUP, "store does not support put-if-absent (If-None-Match), which publishing needs")
    finally:
        path.unlink(missing_ok=True)


def write_json(path: Location, value: object) -> None:
    replace(path, to_json(value))


def read_json(path: Location) -> Any:
    """Read a JSON file. FileNotFoundError if there is no file, ValueError if it is not JSON."""
    return json.loads(path.read_bytes())


def to_json(value: object) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def describe(root: Location, name: str) -> File:
    path = root / name
    return File(name=name, bytes=path.stat().st_size, sha256=digest(path))


def digest(path: Location) -> str:
    if isinstance(path, Path):
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    hashed = hashlib.sha256()
    for chunk in path.chunks():
        hashed.update(chunk)
    return hashed.hexdigest()


def seal(value: dict[str, Any]) -> bytes:
    """Convert to JSON. The first entry is the SHA-256 of all bytes, computed with zeros in place of the hash."""
    lines = (f" {json.dumps(key)}: {json.dumps(entry, allow_nan=False)}" for key, entry in value.items())
    plain = b'{\n "sha256": "' + ZEROS + b'",\n' + ",\n".join(lines).encode() + b"\n}\n"
    return plain.replace(ZEROS, hashlib.sha256(plain).hexdigest().encode(), 1)


def unseal(path: Location) -> dict[str, Any]:
    """Read a JSON file made by `seal`. InputError if its bytes were changed, FileNotFoundError if it is missing."""
    data = path.read_bytes()
    head = HEAD.match(data)
    if head is None:
        raise InputError(f"{path}: not a file that rayhier wrote, or damaged: it does not begin with its SHA-256")
    if hashlib.sha256(data.replace(head[1], ZEROS, 1)).hexdigest().encode() != head[1]:
        raise InputError(f"{path}: damaged or edited: its bytes do not match the SHA-256 that it begins with")
    value: dict[str, Any] = json.loads(data)
    del value["sha256"]
    return value
