"""Read the first rows of a corpus's files, so that a plan tells which rows a run would reject."""

import time
from collections.abc import Iterator
from itertools import islice

from rayhier.corpus import sources
from rayhier.corpus.reader import Rows, collect, distinct
from rayhier.corpus.row_checks import Entry
from rayhier.spec.corpus import FileCorpus, OwnFiles

ROWS, SECONDS = 1_000, 1.0
"""Most rows of a file that are read, and seconds after which no further file is opened."""


def rejected(spec: FileCorpus) -> list[str]:
    """Name the first rejected row of each file of documents, with the number of rejected rows among the first."""
    told, ends, earlier = list[str](), time.monotonic() + SECONDS, set[bytes]()
    for source, documents in _documents(spec):
        if time.monotonic() > ends:
            break
        rows = collect(islice(distinct(documents, earlier), ROWS))
        for line, rejection in rows.rejected[:1]:
            count = f"{len(rows.rejected):,} of the first {rows.read:,} rows would be rejected"
            told.append(f"{source}: {count}, line {line} for instance: {rejection.reason}: {rejection.value}")
    return told


def _documents(spec: FileCorpus) -> Iterator[tuple[str, Rows[Entry]]]:
    if isinstance(spec, OwnFiles) and spec.type == "csv":
        stream = sources.iterated(spec).documents()
        yield stream.source, stream.rows
        return
    reader = sources.ranged(spec)
    for piece in {piece.path: piece for piece in reversed(reader.ranges())}.values():
        yield piece.source, reader.documents(piece)
