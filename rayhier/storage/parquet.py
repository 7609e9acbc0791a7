"""Reads and writes parquet files of artifacts, and reads a user's parquet files."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rayhier.spec import InputError
from rayhier.storage import files
from rayhier.storage.files import File
from rayhier.storage.paths import Location

BUFFER_BYTES = 1 << 20
"""Bytes that pyarrow reads at a time, so that a large row group never lies in memory as a whole."""


def write(root: Location, name: str, groups: Iterable[pa.Table], schema: pa.Schema) -> File:
    """Write each table as a row group of the parquet file `root/name`, vectors without dictionary and statistics."""
    plain = [field for field in schema if not isinstance(field.type, pa.BaseExtensionType)]
    names = [f"{field.name}.list.element" if pa.types.is_nested(field.type) else field.name for field in plain]
    options = {"compression": "zstd", "write_page_checksum": True, "use_dictionary": names, "write_statistics": names}

    def fill(temporary: Path) -> File:
        with pq.ParquetWriter(temporary, schema, **options) as writer:
            for table in groups:
                writer.write_table(table.cast(schema), row_group_size=max(1, table.num_rows))
        return File(name=name, bytes=temporary.stat().st_size, sha256=files.digest(temporary))

    return files.write(root / name, fill)


def read(path: Location, columns: Sequence[str] | None = None, filters: Any = None) -> pa.Table:
    names = None if columns is None else list(columns)
    with _source(path) as source:
        return pq.read_table(source, columns=names, filters=filters, page_checksum_verification=True)


def read_rows(path: Location, columns: Sequence[str], first: int, last: int) -> pa.Table:
    """Read `columns` of the rows [first, last) of a parquet file, from only the row groups with such rows."""
    with _source(path) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        ends = list(itertools.accumulate(sizes))
        groups = [group for group, end in enumerate(ends) if end > first and end - sizes[group] < last]
        begin = ends[groups[0]] - sizes[groups[0]] if groups else 0
        return file.read_row_groups(groups, columns=list(columns)).slice(first - begin, last - first)


def slices(table: pa.Table, rows: int) -> list[pa.Table]:
    return [table.slice(begin, rows) for begin in range(0, table.num_rows, rows)]


def divided(path: Location, key: str, ends: Iterable[int]) -> Iterator[pa.Table]:
    """Yield, for each of the ascending `ends`, the next rows whose number in column `key` is below this end.

    The rows of the file ascend by `key`. Each row group is read once. Between reads the file is closed.
    """
    about = metadata(path)
    rest, group = about.schema.to_arrow_schema().empty_table(), 0
    for end in ends:
        while group < about.num_row_groups and (not len(rest) or rest[key][-1].as_py() < end):
            with (
                _source(path) as source,
                pq.ParquetFile(source, metadata=about, page_checksum_verification=True) as file,
            ):
                rest, group = pa.concat_tables([rest, file.read_row_group(group)]), group + 1
        count = int(np.searchsorted(rest[key].to_numpy(), end))
        yield rest.slice(0, count)
        rest = rest.slice(count)


@contextlib.contextmanager
def _source(path: Location) -> Iterator[Any]:
    if isinstance(path, Path):
        yield path
    else:
        with path.open() as opened:
            yield opened


def metadata(path: Location) -> pq.FileMetaData:
    with _source(path) as source:
        return pq.read_metadata(source)


def opened(path: Path) -> pq.ParquetFile:
    """Open a user's parquet file. InputError if the file is damaged."""
    with _whole(path):
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES)


def tables(path: Path, columns: Iterable[str], rows: int, groups: Iterable[int] | None = None) -> Iterator[pa.Table]:
    """Yield a file, or some of its row groups, in tables of `rows` rows, without columns that the file lacks."""
    file = opened(path)
    names = [name for name in dict.fromkeys(columns) if name in file.schema_arrow.names]
    wanted = range(file.num_row_groups) if groups is None else groups
    with _whole(path):
        for batch in file.iter_batches(rows, row_groups=list(wanted), columns=names):
            yield pa.Table.from_batches([batch])


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Raise InputError in place of pyarrow's errors inside the block."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        message = str(error).splitlines()[0][:200]
        raise InputError(f"{path}: cannot be read as parquet ({message}); allowed: a whole parquet file") from None
