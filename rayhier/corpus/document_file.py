"""Read documents to add to an index from a JSON lines, CSV, TSV or parquet file, with the checks of a corpus."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa

from rayhier.corpus import lines, own_files, parquet, row_checks
from rayhier.corpus.reader import checked
from rayhier.corpus.row_checks import Entry, Rejection, RowSchema
from rayhier.spec import InputError
from rayhier.storage import csv_rows
from rayhier.storage.listing import PARQUET, SUFFIXES
from rayhier.storage.parquet import tables

REASONS_SHOWN = 3
VECTOR = "vector"


@dataclass(frozen=True)
class Read:
    rows: list[Entry | Rejection | None]
    """Checked rows of the file. None is a blank line."""
    vectors: pa.ChunkedArray | None


def read(path: Path, schema: RowSchema, size: int, *, vectors: bool = True) -> Iterator[Read]:
    """Yield the rows of a file, `size` at a time. InputError if the file is missing, or has no column of ids."""
    if not path.is_file():
        raise InputError(f"{path}: {'a folder; allowed: one file' if path.is_dir() else 'no such file'}")
    with path.open("rb") as opened:
        is_text = path.suffix.lower() in SUFFIXES and not opened.read(1).startswith(b"{")
    if is_text:
        needed = f"{schema.columns.id}, {schema.columns.title} and {schema.columns.text}"
        raise InputError(f"{path}: got a text; allowed: JSON lines, CSV or parquet with {needed}")
    if path.suffix.lower() != PARQUET:
        rows = checked(csv_rows.rows(path), lambda row: own_files.csv_document(row, schema))
        if path.suffix.lower() not in csv_rows.SUFFIXES:
            raw = lines.rows(lines.lines(path, 0, path.stat().st_size))
            rows = checked(raw, lambda line: schema.document(row_checks.json_row(line)))
        while part := list(islice(rows, size)):
            yield Read(part, None)
        return
    names = schema.columns
    parquet.check_columns("file", path, [names.id])
    wanted = [names.id, names.title, names.text, *schema.fields, *([VECTOR] if vectors else [])]
    for table in tables(path, wanted, size):
        vector_column = table[VECTOR] if VECTOR in table.column_names else None
        raw = table.drop_columns([] if vector_column is None else [VECTOR]).to_pylist()
        yield Read(list(checked(raw, schema.document)), vector_column)


def check_rows(path: Path, rows: Iterable[Entry | Rejection | None]) -> int:
    """Check all rows before the first row is used. Returns the number of documents. InputError if a row is refused."""
    documents, bad, reasons = 0, 0, list[str]()
    for number, row in enumerate(rows, 1):
        documents += isinstance(row, Entry)
        if isinstance(row, Rejection):
            bad += 1
            reasons += [f"row {number}: {row.reason}"] if bad <= REASONS_SHOWN else []
    if bad:
        more = f" and {bad - REASONS_SHOWN} more" if bad > REASONS_SHOWN else ""
        raise InputError(f"{path}: {'; '.join(reasons)}{more}; allowed: rows as in the corpus. Nothing was changed")
    return documents
