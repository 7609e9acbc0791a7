"""Documents to add, from a user's file or a request, which are checked like a corpus and made into rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats
from rayhier.corpus.document_file import VECTOR, check_rows, read
from rayhier.corpus.passages import DocumentLayout
from rayhier.corpus.row_checks import Entry, RowError, RowSchema, beginning
from rayhier.dataset.documents import document_texts
from rayhier.index.change import Batch
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError
from rayhier.spec.corpus import CorpusSpec

BATCH = 16_384
"""Number of documents in memory at a time. Each batch of a larger file becomes a shard of the leaf map."""
LENGTH = 0.01
"""Largest difference of a unit vector's length from 1, as rounding to float16 changes lengths."""

Encode = Callable[[Sequence[str]], Encoded]


def batches(
    path: Path, corpus: CorpusSpec, key: str | None, encode: Encode, size: int = BATCH, *, unit: bool = False
) -> Iterator[Batch]:
    """Yield the documents of a `.jsonl`, CSV, TSV or `.parquet` file in batches of at most `size`, encoded by `encode`.

    `key` is the column of ids if it is not the corpus's. A parquet file may have a column `vector` with the trained
    encoder's vectors, of length 1 with `unit`. Documents with vectors are not encoded. All rows are checked first.
    InputError names the refused rows.
    """
    layout = DocumentLayout.of(corpus)
    columns = corpus.row_columns
    schema = RowSchema(corpus.limits, columns if key is None else columns.model_copy(update={"id": key}), layout.fields)
    check_rows(path, (row for part in read(path, schema, size, vectors=False) for row in part.rows))
    for part in read(path, schema, size):
        table = layout.table([row for row in part.rows if isinstance(row, Entry)])
        vectors = part.vectors
        if vectors is not None and len(vectors) != len(table) and layout.passages is None:
            raise InputError(f"{path}: changed while it was read. Nothing was added. Run it again")
        if not len(table):
            continue
        if vectors is None or vectors.null_count == len(vectors):
            yield table, encode(document_texts(table))
            continue
        if layout.passages is not None:
            raise InputError(f"{path}: got vectors, but this index cuts documents into passages; allowed: no vectors")
        yield table, Encoded(_matrix(path, vectors, unit=unit))


def _matrix(path: Path, vectors: pa.ChunkedArray, *, unit: bool) -> Floats:
    """Return vectors [n, m] of a column of lists. InputError if they are not numbers, or of several sizes."""
    kind, rows = vectors.type, len(vectors)
    if not _is_list(kind):
        raise InputError(f"{path}: {VECTOR}: got {kind}; allowed: lists of numbers")
    sizes = sorted(size for size in pc.list_value_length(vectors).unique().to_pylist() if size is not None)
    if vectors.null_count or len(sizes) != 1:
        raise InputError(f"{path}: vectors of {sizes} numbers, {vectors.null_count} rows without; allowed: one size")
    numbers = pc.list_flatten(vectors)
    is_number = pa.types.is_floating(numbers.type) or pa.types.is_integer(numbers.type)
    if not is_number:
        inner = "lists" if _is_list(numbers.type) else numbers.type
        raise InputError(f"{path}: {VECTOR}: got lists of {inner}; allowed: lists of numbers")
    if numbers.null_count:
        raise InputError(f"{path}: {VECTOR}: got null in a list; allowed: lists of numbers")
    vector_NM: Floats = numbers.to_numpy().astype(np.float32).reshape(rows, sizes[0])
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vector_NM, axis=1)
    if unit and (wrong := lengths[np.abs(lengths - 1) > LENGTH]).size:
        raise InputError(
            f"{path}: vector: got {len(wrong)} of {rows} with other lengths than 1, such as {wrong[0]:.4g}; allowed: "
            "vectors of length 1"
        )
    return vector_NM


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


@dataclass(frozen=True)
class GivenDocuments:
    table: pa.Table
    ids: list[str]
    vector_NM: Floats | None
    """Vectors [n, m] of the rows. None if the rows must be encoded."""


def given_documents(
    documents: Sequence[Mapping[str, Any]], corpus: CorpusSpec, dimension: int, *, unit: bool
) -> GivenDocuments:
    """Check documents with keys `id`, `title`, `text`, `fields` and `vector`. InputError names the refused document.

    Either all or none have a vector of the trained encoder. With `unit`, vectors must have length 1.
    """
    layout, names = DocumentLayout.of(corpus), corpus.row_columns
    schema = RowSchema(corpus.limits, names, layout.fields)
    entries, places = list[Entry](), dict[str, int]()
    for place, document in enumerate(documents):
        entry = _entry(document, schema, place)
        if entry.key in places:
            raise InputError(
                f"documents[{place}].id: got {beginning(entry.key)!r}, which documents[{places[entry.key]}] has too; "
                "allowed: each id once. Nothing was changed"
            )
        places[entry.key] = place
        entries.append(entry)
    vectors = [document.get("vector") for document in documents]
    has = [vector is not None for vector in vectors]
    if any(has) and layout.passages is not None:
        raise InputError(
            f"documents[{has.index(True)}].vector: got one, but this index has passages; allowed: no vectors"
        )
    if any(has) and not all(has):
        raise InputError(f"documents[{has.index(False)}].vector: got none; allowed: vectors for all documents or none")
    vector_NM = _given_vectors(vectors, dimension, unit=unit) if any(has) else None
    return GivenDocuments(layout.table(entries), list(places), vector_NM)


def _entry(document: Mapping[str, Any], schema: RowSchema, place: int) -> Entry:
    names, fields = schema.columns, document.get("fields") or {}
    for name in fields:
        if name not in schema.fields:
            allowed = ", ".join(schema.fields) or "none, as this corpus declares no fields"
            raise InputError(f"documents[{place}].fields: got {beginning(name)!r}; allowed: {allowed}")
    row = {names.id: document.get("id"), names.title: document.get("title"), names.text: document.get("text"), **fields}
    try:
        entry = schema.document(row)
    except RowError as error:
        raise InputError(
            f"documents[{place}]: {error.reason}; allowed: documents as in the corpus. Nothing was changed"
        ) from None
    if entry.cut:
        most = f"{schema.limits.title:,} characters of title and {schema.limits.text:,} of text"
        raise InputError(f"documents[{place}]: got a longer text; allowed: {most}. Nothing was changed")
    return entry


def _given_vectors(vectors: Sequence[Any], dimension: int, *, unit: bool) -> Floats:
    for place, vector in enumerate(vectors):
        if len(vector) != dimension:
            raise InputError(f"documents[{place}].vector: got {len(vector)} numbers; allowed: {dimension}")
    vector_NM = np.array(vectors, dtype=np.float32)  # lists or arrays
    lengths = np.linalg.norm(vector_NM, axis=1)
    if unit and (wrong := np.flatnonzero(np.abs(lengths - 1) > LENGTH)).size:
        place = int(wrong[0])
        raise InputError(
            f"documents[{place}].vector: got length {lengths[place]:.4g}; allowed: length 1, as the encoder makes them"
        )
    return vector_NM
