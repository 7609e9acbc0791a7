"""Writing files whole: bytes become visible under their name all at once, or not at all."""

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore
from pydantic import BaseModel, ConfigDict

CHUNK = 1 << 20


class File(BaseModel):
    """A file of an artifact: its name below the artifact's folder, its size in bytes, its SHA-256."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    bytes: int
    sha256: str


def create(path: Path, data: bytes) -> bool:
    """Put-if-absent, the commit of every artifact. False where the name exists already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        obstore.put(LocalStore(path.parent), path.name, data, mode="create")
    except AlreadyExistsError:
        return False
    return True


def replace(path: Path, data: bytes) -> None:
    """Write `data` under `path` in one step, over whatever is there."""
    write(path, lambda temporary: temporary.write_bytes(data))


def write(path: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write a temporary neighbour, flush it to the device and rename it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        fill(temporary)
        with temporary.open("rb") as opened:
            os.fsync(opened.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_parquet(root: Path, name: str, groups: Iterable[pa.Table], schema: pa.Schema) -> File:
    """Write tables as the row groups of the parquet file `root/name`; returns its entry."""

    def fill(temporary: Path) -> None:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for table in groups:
                writer.write_table(table.cast(schema), row_group_size=max(1, table.num_rows))

    write(root / name, fill)
    return describe(root, name)


def write_json(path: Path, value: object) -> None:
    """Write `value` as indented JSON, in one step."""
    replace(path, to_json(value))


def read_json(path: Path) -> Any:
    """The JSON value at `path`; FileNotFoundError where there is none."""
    return json.loads(path.read_bytes())


def to_json(value: object) -> bytes:
    """JSON as people read it, keys in the order given."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def describe(root: Path, name: str) -> File:
    """Size and digest of `root/name` as it lies on storage now."""
    path = root / name
    return File(name=name, bytes=path.stat().st_size, sha256=digest(path))


def digest(path: Path) -> str:
    """SHA-256 of a file's bytes, 64 hex digits."""
    hashed = hashlib.sha256()
    with path.open("rb") as opened:
        while chunk := opened.read(CHUNK):
            hashed.update(chunk)
    return hashed.hexdigest()
