"""Read documents to add from a user's file, check them like a corpus, and encode them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats
from rayhier.corpus import parquet
from rayhier.corpus.check import Entry, Rules
from rayhier.corpus.document_file import VECTOR, Read, check_rows, read
from rayhier.corpus.passages import DocumentLayout
from rayhier.dataset.documents import document_texts
from rayhier.index.change import Batch
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError
from rayhier.spec.corpus import CorpusSpec
from rayhier.storage.source import PARQUET

BATCH = 16_384
"""Number of documents in memory at a time; each batch of a larger file becomes a shard of the leaf map."""
SMALL, FEW = 64 << 20, 4 * BATCH
"""Bytes, uncompressed, and rows of a file up to which all of its documents are in memory, and it is read once: checked,
then added."""
LENGTH = 0.01
"""Most by which a unit vector's length may differ from 1, as rounding to float16 can make it."""

Encode = Callable[[Sequence[str]], Encoded]
"""Function that encodes texts by the trained encoder."""


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
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    is_small = _is_small(path)
    parts: Iterable[Read] = list(read(path, rules, size)) if is_small else read(path, rules, size, vectors=False)
    check_rows(path, (row for part in parts for row in part.rows))
    for part in parts if is_small else read(path, rules, size):
        table = layout.table([row for row in part.rows if isinstance(row, Entry)])
        vectors = part.vectors
        if vectors is not None and len(vectors) != len(table) and layout.passages is None:
            raise InputError(f"{path}: changed while it was read; nothing was changed; run it again")
        if not len(table):
            continue
        if vectors is None or vectors.null_count == len(vectors):
            yield table, encode(document_texts(table))
            continue
        if layout.passages is not None:
            raise InputError(
                f"{path}: has vectors, but documents of this index are cut into passages; allowed: no vectors"
            )
        yield table, Encoded.of(_matrix(path, vectors, unit=unit))


def _is_small(path: Path) -> bool:
    if path.suffix != PARQUET:
        return path.stat().st_size <= SMALL
    rows, size = parquet.extent(path)
    return rows <= FEW and size <= SMALL


def _matrix(path: Path, vectors: pa.ChunkedArray, *, unit: bool) -> Floats:
    """Return vectors [n, m] of a column of lists; InputError where they are not numbers, or of several sizes."""
    kind, rows = vectors.type, len(vectors)
    if not _is_list(kind):
        raise InputError(f"{path}: {VECTOR}: holds {kind}; allowed: lists of numbers")
    sizes = sorted(size for size in pc.list_value_length(vectors).unique().to_pylist() if size is not None)
    if vectors.null_count or len(sizes) != 1:
        raise InputError(f"{path}: vectors of {sizes} numbers, {vectors.null_count} rows without; allowed: one size")
    numbers = pc.list_flatten(vectors)
    is_number = pa.types.is_floating(numbers.type) or pa.types.is_integer(numbers.type)
    if not is_number:
        inner = "lists" if _is_list(numbers.type) else numbers.type
        raise InputError(f"{path}: {VECTOR}: holds lists of {inner}; allowed: lists of numbers")
    if numbers.null_count:
        raise InputError(f"{path}: {VECTOR}: holds numbers that are null; allowed: lists of numbers")
    vector_NM: Floats = numbers.to_numpy().astype(np.float32).reshape(rows, sizes[0])
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vector_NM, axis=1)
    if unit and (wrong := lengths[np.abs(lengths - 1) > LENGTH]).size:
        raise InputError(
            f"{path}: vector: {len(wrong)} of {rows} are not of length 1, the first of {wrong[0]:.4g}; allowed: unit "
            "vectors, as the encoder makes them for cosine"
        )
    return vector_NM


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
