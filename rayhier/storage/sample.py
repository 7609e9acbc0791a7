"""How many passages the documents of a source make, told from the first of them."""

import contextlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rayhier.spec.corpus import Columns, Limits, Listed, MsMarco, Parquet, Passages

MOST, MOST_BYTES = 1_000, 4 << 20
"""Documents of a sample, and bytes of a file of lines or of parquet's texts."""
BATCH_ROWS, BUFFER_BYTES = 50, 1 << 20


def passages_a_document(spec: Listed, passages: Passages, path: Path) -> float:
    """Passages on average of the first thousand rows, 4 MiB at most, of a file of documents.

    A row without a text that can be read makes none, as it will be rejected; where all are so, the answer is 1.
    """
    texts = list(islice(_texts(spec, path), MOST))
    made = sum(_passages(text, spec.limits, passages) for text in texts if text is not None)
    return made / len(texts) if made else 1


def _passages(text: str, limits: Limits, passages: Passages) -> int:
    return len(passages.starts(len(text[: limits.text].split())))


def _texts(spec: Listed, path: Path) -> Iterator[str | None]:
    """The text of each row; None where there is none."""
    name = getattr(spec, "columns", Columns()).text
    match spec:
        case Parquet():
            yield from _of_parquet(path, name)
        case MsMarco():
            yield from (_of_table(line) for line in _lines(path))
        case _:
            yield from (_of_object(line, name) for line in _lines(path))


def _lines(path: Path) -> Iterator[bytes]:
    """Lines that are not blank and end within the first bytes of a file."""
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
    """Texts batch by batch, so that no row group need lie in memory; what cannot be read, the corpus stage refuses."""
    size = 0
    with contextlib.suppress(pa.ArrowException, OSError):
        file = pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES)
        columns = [name] if name in file.schema_arrow.names else []
        for batch in file.iter_batches(BATCH_ROWS, columns=columns):
            yield from map(_text, batch.to_pydict().get(name, []))
            size += batch.nbytes
            if size >= MOST_BYTES:
                break
