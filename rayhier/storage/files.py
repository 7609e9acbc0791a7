"""Writing files whole: bytes become visible under their name all at once, or not at all.

A file lies on this machine or in a bucket: what artifacts do with a `Location` is the same for both.
"""

import contextlib
import errno
import hashlib
import itertools
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from rayhier.storage.paths import Location
from rayhier.storage.remote import Remote

CHUNK = 1 << 20
T = TypeVar("T")


class File(BaseModel):
    """A file of an artifact: its name below the artifact's folder, its size in bytes, its SHA-256."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    bytes: int
    sha256: str


def create(path: Location, data: bytes) -> bool:
    """Put-if-absent, the commit of every artifact. False where the name exists already.

    Writers that may race must not write the same data.
    """
    if isinstance(path, Remote):
        return path.create(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    try:
        temporary.write_bytes(data)
        _flush(temporary)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it is there, for all to see
        _flush(path.parent)
    return True


def replace(path: Location, data: bytes) -> None:
    """Write `data` under `path` in one step, over whatever is there."""
    if isinstance(path, Remote):
        path.write_bytes(data)
    else:
        write(path, lambda temporary: temporary.write_bytes(data))


def write(path: Location, fill: Callable[[Path], T]) -> T:
    """Let `fill` write a temporary file on this machine, then show it under `path`; returns what `fill` does.

    Here it is a neighbour, flushed to the device and renamed; to a bucket it is uploaded.
    """
    if isinstance(path, Remote):
        with tempfile.TemporaryDirectory() as folder:
            made = fill(Path(folder) / path.name)
            path.upload(Path(folder) / path.name)
        return made
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    try:
        made = fill(temporary)
        _flush(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        _flush(path.parent)
    return made


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")


def _flush(path: Path) -> None:
    """To the device: a file's bytes, a folder's names. What is published outlives a power cut."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def filling(folder: Location) -> Iterator[Path]:
    """A folder on this machine for libraries that write paths; once left, its files lie in `folder`.

    Here it is `folder` itself. To a bucket they are uploaded one by one, unless an error ends the block.
    """
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield Path(temporary)
        for name in below(Path(temporary)):
            (folder / name).upload(Path(temporary) / name)


def below(folder: Location) -> list[str]:
    """Names, from `folder` on, of every file below it at any depth, sorted."""
    if isinstance(folder, Remote):
        return sorted(folder.below())
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def remove(folder: Location) -> None:
    """Remove every file below a folder, as far as that can be done."""
    if isinstance(folder, Remote):
        with contextlib.suppress(OSError):
            folder.remove_below()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def probe(folder: Location) -> None:
    """Try in `folder` what a run will do there; OSError where it cannot be done."""
    path = folder / f".writable-{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    replace(path, b"")
    try:
        if create(path, b"again"):
            raise OSError(errno.ENOTSUP, "it does not honour put-if-absent (If-None-Match), which publishing needs")
    finally:
        path.unlink(missing_ok=True)


def write_parquet(root: Location, name: str, groups: Iterable[pa.Table], schema: pa.Schema) -> File:
    """Write tables as the row groups of the parquet file `root/name`; returns its entry."""

    def fill(temporary: Path) -> File:
        with pq.ParquetWriter(temporary, schema, compression="zstd", write_page_checksum=True) as writer:
            for table in groups:
                writer.write_table(table.cast(schema), row_group_size=max(1, table.num_rows))
        return File(name=name, bytes=temporary.stat().st_size, sha256=digest(temporary))

    return write(root / name, fill)


def read_table(path: Location, columns: Sequence[str] | None = None, filters: Any = None) -> pa.Table:
    """Columns (all, without them) of a parquet file, and of its rows those that pass pyarrow's `filters`."""
    names = None if columns is None else list(columns)
    with _source(path) as source:
        return pq.read_table(source, columns=names, filters=filters, page_checksum_verification=True)


def read_rows(path: Location, columns: Sequence[str], first: int, last: int) -> pa.Table:
    """Rows [first, last) of a parquet file; only the row groups that hold some of them are read."""
    with _source(path) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        ends = list(itertools.accumulate(sizes))
        groups = [group for group, end in enumerate(ends) if end > first and end - sizes[group] < last]
        begin = ends[groups[0]] - sizes[groups[0]] if groups else 0
        return file.read_row_groups(groups, columns=list(columns)).slice(first - begin, last - first)


@contextlib.contextmanager
def _source(path: Location) -> Iterator[Any]:
    """What pyarrow reads: a path, or an object opened for reads here and there."""
    if isinstance(path, Path):
        yield path
    else:
        with path.open() as opened:
            yield opened


def read_metadata(path: Location) -> pq.FileMetaData:
    """Row counts, statistics and columns of a parquet file."""
    with _source(path) as source:
        return pq.read_metadata(source)


def write_json(path: Location, value: object) -> None:
    """Write `value` as indented JSON, in one step."""
    replace(path, to_json(value))


def read_json(path: Location) -> Any:
    """The JSON value at `path`; FileNotFoundError where there is none."""
    return json.loads(path.read_bytes())


def to_json(value: object) -> bytes:
    """JSON as people read it, keys in the order given."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def describe(root: Location, name: str) -> File:
    """Size and digest of `root/name` as it lies on storage now."""
    path = root / name
    return File(name=name, bytes=path.stat().st_size, sha256=digest(path))


def digest(path: Location) -> str:
    """SHA-256 of a file's bytes, 64 hex digits."""
    hashed = hashlib.sha256()
    for chunk in _chunks(path):
        hashed.update(chunk)
    return hashed.hexdigest()


def _chunks(path: Location) -> Iterator[bytes]:
    if isinstance(path, Remote):
        yield from path.chunks()
        return
    with path.open("rb") as opened:
        while chunk := opened.read(CHUNK):
            yield chunk
