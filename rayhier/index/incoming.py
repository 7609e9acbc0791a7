"""Read documents to add from a user's file, check them like a corpus, and encode them."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rayhier.arrays import Floats
from rayhier.corpus import check, lines, parquet
from rayhier.corpus.check import Entry, Rejection, Rules
from rayhier.corpus.passages import DocumentLayout
from rayhier.corpus.rows import Rows, checked
from rayhier.dataset.documents import document_texts
from rayhier.index.change import Batch
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError
from rayhier.spec.corpus import CorpusSpec
from rayhier.storage.source import PARQUET

BATCH = 4096
"""Number of documents in memory at a time; each batch of a larger file becomes a shard of the leaf map."""
REASONS_SHOWN = 3
VECTOR = "vector"
LENGTH = 0.01
"""Most by which a unit vector's length may differ from 1, as rounding to float16 can make it."""

Encode = Callable[[Sequence[str]], Encoded]
"""Function that encodes texts by the trained encoder."""
Row = tuple[Entry, Any]
"""A document, and its vector where the file has one, else None."""


def batches(
    path: Path, corpus: CorpusSpec, key: str | None, encode: Encode, size: int = BATCH, *, unit: bool = False
) -> Iterator[Batch]:
    """Yield the documents of a `.jsonl` or `.parquet` file in batches of at most `size`, encoded by `encode`.

    Columns have the corpus's names; `key` is the name of the column of ids where it differs. A parquet file may have a
    column `vector` of vectors that the trained encoder made: these documents are not encoded, and with `unit` each
    vector must have length 1. All rows are checked first; InputError names the refused ones and the reasons.
    """
    layout = DocumentLayout.of(corpus)
    columns = corpus.row_columns
    rules = Rules(corpus.limits, columns if key is None else columns.model_copy(update={"id": key}), layout.fields)
    _check(path, _rows(path, rules))
    rows = (row for row in _rows(path, rules) if isinstance(row, tuple))
    while batch := list(islice(rows, size)):
        table = layout.table([entry for entry, _ in batch])
        vectors = [vector for _, vector in batch if vector is not None]
        if vectors and layout.passages is not None:
            raise InputError(
                f"{path}: has vectors, but documents of this index are cut into passages; allowed: no vectors"
            )
        yield (
            table,
            Encoded.of(_matrix(path, vectors, len(batch), unit=unit)) if vectors else encode(document_texts(table)),
        )


def _rows(path: Path, rules: Rules) -> Rows[Row]:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.suffix != PARQUET:
        raw = lines.rows(lines.lines(path, 0, path.stat().st_size))
        return checked(raw, lambda line: (check.document(check.json_row(line), rules), None))
    names = rules.columns
    parquet.check_columns("file", path, [names.id])
    wanted = [names.id, names.title, names.text, *rules.fields, VECTOR]
    return checked(parquet.read(path, wanted), lambda row: (check.document(row, rules), row.get(VECTOR)))


def _check(path: Path, rows: Rows[Row]) -> None:
    """Check all rows before the first is encoded; InputError where a row is refused."""
    bad, reasons = 0, []
    for number, row in enumerate(rows, 1):
        if isinstance(row, Rejection):
            bad += 1
            reasons += [f"row {number}: {row.reason}"] if bad <= REASONS_SHOWN else []
    if bad:
        more = f" and {bad - REASONS_SHOWN} more" if bad > REASONS_SHOWN else ""
        raise InputError(f"{path}: {'; '.join(reasons)}{more}; allowed: rows as in the corpus; nothing was changed")


def _matrix(path: Path, vectors: Sequence[Any], rows: int, *, unit: bool) -> Floats:
    if not all(isinstance(vector, list) for vector in vectors):
        raise InputError(f"{path}: vector: holds {type(vectors[0]).__name__}; allowed: lists of numbers")
    sizes = {len(vector) for vector in vectors}
    if len(vectors) != rows or len(sizes) != 1:
        raise InputError(
            f"{path}: vectors of {sorted(sizes)} numbers, {rows - len(vectors)} rows without; allowed: one size"
        )
    try:
        vector_NM = np.array(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: vector: {error}; allowed: lists of numbers") from None
    if vector_NM.ndim != 2:
        raise InputError(f"{path}: vector: holds lists of lists; allowed: lists of numbers")
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vector_NM, axis=1)
    if unit and (wrong := lengths[np.abs(lengths - 1) > LENGTH]).size:
        raise InputError(
            f"{path}: vector: {len(wrong)} of {rows} are not of length 1, the first of {wrong[0]:.4g}; allowed: unit "
            "vectors, as the encoder makes them for cosine"
        )
    return vector_NM
