"""Estimate how many passages the documents of a corpus are cut into, from the first documents of a file."""

import contextlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rayhier.spec.corpus import FileCorpus, Limits, MsMarco, OwnFiles, Passages

MOST, MOST_BYTES = 1_000, 4 << 20
"""MOST: most documents of a sample. MOST_BYTES: most bytes read of a file of lines, or of a parquet file's texts."""
BATCH_ROWS, BUFFER_BYTES = 50, 1 << 20


def passages_a_document(spec: FileCorpus, passages: Passages, path: Path) -> float:
    """Estimate the mean number of passages of a document, from the first thousand rows of a file, at most 4 MiB.

    A row without a readable text counts as no passage, because it will be rejected. Returns 1 where no row has a
    passage.
    """
    texts = list(islice(_texts(spec, path), MOST))
    passage_count = sum(_passages(text, spec.limits, passages) for text in texts if text is not None)
    return passage_count / len(texts) if passage_count else 1


def _passages(text: str, limits: Limits, passages: Passages) -> int:
    return len(passages.starts(len(text[: limits.text].split())))


def _texts(spec: FileCorpus, path: Path) -> Iterator[str | None]:
    """The text of each row; "" where it is missing, None where the row cannot be read."""
    name = spec.row_columns.text
    match spec:
        case OwnFiles(type="parquet"):
            yield from _of_parquet(path, name)
        case MsMarco():
            yield from (_of_table(line) for line in _lines(path))
        case _:
            yield from (_of_object(line, name) for line in _lines(path))


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as opened:
        lines = opened.read(MOST_BYTES).split(b"\n")
        if opened.read(1):
            lines.pop()
    yield from filter(bytes.strip, lines)


def _of_object(line: bytes, name: str) -> str | None:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    return _text(row.get(name))


def _text(value: object) -> str | None:
    return "" if value is None else value if isinstance(value, str) else None


def _of_table(line: bytes) -> str | None:
    columns = line.decode("utf-8-sig", "replace").rstrip("\r").split("\t")
    return columns[1] if len(columns) == 2 else None


def _of_parquet(path: Path, name: str) -> Iterator[str | None]:
    """Texts of a parquet file, read in batches to save memory. Read errors end it: the corpus stage reports them."""
    size = 0
    with contextlib.suppress(pa.ArrowException, OSError):
        file = pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES)
        columns = [name] if name in file.schema_arrow.names else []
        for batch in file.iter_batches(BATCH_ROWS, columns=columns):
            yield from map(_text, batch.to_pydict().get(name, []))
            size += batch.nbytes
            if size >= MOST_BYTES:
                break
