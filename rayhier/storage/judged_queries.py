"""Hash the queries that train or dev judgements name.

Fingerprints cover this hash, not the whole file, so that adding other queries makes no trained artifact anew.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rayhier.spec.corpus import FileCorpus, MsMarco
from rayhier.storage.listing import Listing

PARQUET = ".parquet"
BATCH_ROWS = 10_000


def digest(spec: FileCorpus, listing: Listing) -> str:
    """Return the SHA-256 of the rows of all queries that train or dev judgements name, in the order of the files.

    A row without a readable id counts as named by none. A damaged parquet file ends early: reading it reports that.
    """
    named = {name for split in ("train", "dev") for name in _named(spec, listing, split)}
    hashed = hashlib.sha256()
    for file in listing.queries if named else ():
        for name, row in _rows(spec, file.path):
            if name in named:
                hashed.update(len(row).to_bytes(8, "little") + row)
    return hashed.hexdigest()


def _named(spec: FileCorpus, listing: Listing, split: str) -> Iterator[str]:
    """Yield the query id of each line of a split's judgements; a header counts as an id that no query has."""
    file = listing.judgements.get(split)
    if file is None:
        return
    if file.path.suffix == PARQUET:
        for row in _batches(file.path, ["query-id"]):
            yield str(row["query-id"])
        return
    blanks = None if isinstance(spec, MsMarco) else "\t"
    with file.path.open("rb") as opened:
        for line in opened:
            text = line.decode("utf-8-sig", "replace").rstrip("\r\n")
            yield next(iter(text.split(blanks, 1)), "")


def _rows(spec: FileCorpus, path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield id and content of every query of a file."""
    columns = spec.row_query_columns
    if path.suffix == PARQUET and not spec.in_lines:
        for row in _batches(path, [columns.id, columns.text]):
            yield str(row.get(columns.id)), json.dumps(row, sort_keys=True, default=str).encode()
        return
    with path.open("rb") as opened:
        for line in opened:
            if isinstance(spec, MsMarco):
                yield line.decode("utf-8-sig", "replace").split("\t", 1)[0], line.strip()
                continue
            with suppress(ValueError, RecursionError):
                row = json.loads(line.decode("utf-8-sig"))
                if isinstance(row, dict):
                    yield str(row.get(columns.id)), line.strip()


def _batches(path: Path, names: list[str]) -> Iterator[dict[str, object]]:
    """Yield rows of a parquet file, of some columns where the file has them, in bounded memory."""
    with suppress(pa.ArrowException, OSError):
        file = pq.ParquetFile(path, pre_buffer=False)
        columns = [name for name in names if name in file.schema_arrow.names]
        for batch in file.iter_batches(BATCH_ROWS, columns=columns):
            yield from (dict.fromkeys(names) | row for row in batch.to_pylist())
