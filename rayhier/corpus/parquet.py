"""Read rows of a user's own parquet files, and divide a file into ranges of row groups."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rayhier.spec import InputError
from rayhier.storage.parquet import opened, tables

RANGE_BYTES = 16 << 20
"""Largest number of uncompressed bytes of a range of small row groups. A larger row group is a range by itself."""
BATCH_ROWS = 1_000


def read(path: Path, columns: Iterable[str], groups: Iterable[int] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, or of some row groups, with the existing columns. InputError if the file is damaged."""
    for table in tables(path, columns, BATCH_ROWS, groups):
        yield from table.to_pylist()


def check_columns(key: str, path: Path, names: Iterable[str]) -> None:
    """Check that a parquet file has the columns `names`. InputError with the spec's `key` if a column is missing."""
    columns = opened(path).schema_arrow.names
    for name in names:
        if name not in columns:
            shown = ", ".join(columns[:20])
            raise InputError(f"{key}: {path} has no column {name!r}; allowed: one of its columns: {shown}")


def pieces(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Cut row groups into ranges [begin, end) of at most RANGE_BYTES. A larger row group is a range by itself.

    >>> pieces([9 << 20, 9 << 20, 1, 1])
    [(0, 1), (1, 4)]
    """
    cuts, range_size = [0], 0
    for number, size in enumerate(sizes):
        if number > cuts[-1] and range_size + size > RANGE_BYTES:
            cuts.append(number)
            range_size = 0
        range_size += size
    return list(zip(cuts, [*cuts[1:], len(sizes)], strict=True))


def sizes(path: Path) -> list[int]:
    metadata = opened(path).metadata
    return [metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups)]
