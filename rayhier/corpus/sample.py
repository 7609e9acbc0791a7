"""Read the first rows of a corpus's files, so that a plan tells which rows a run would reject."""

from itertools import islice

from rayhier.corpus import sources
from rayhier.corpus.reader import Stream, collect, distinct
from rayhier.corpus.row_checks import Entry
from rayhier.spec.corpus import FileCorpus, OwnFiles, TextFiles

FILES, ROWS = 50, 1_000


def rejected(spec: FileCorpus) -> list[str]:
    """Name the first rejected row in each of the first files of documents, and count rejected rows in a sample."""
    told, earlier, first = list[str](), set[bytes](), dict[str, Stream[Entry]]()
    for stream in _streams(spec):
        first.setdefault(stream.source, stream)
    for stream in list(first.values())[:FILES]:
        rows = collect(islice(distinct(stream.rows, earlier), ROWS))
        for line, rejection in rows.rejected[:1]:
            count = f"{len(rows.rejected):,} of the first {rows.read:,} rows would be rejected"
            told.append(f"{stream.source}: {count}, line {line} for instance: {rejection.reason}: {rejection.value}")
    return told


def ids(spec: FileCorpus) -> set[str]:
    """Read the ids of all accepted documents."""
    return {row.key for stream in _streams(spec) for row in stream.rows if isinstance(row, Entry)}


def _streams(spec: FileCorpus) -> list[Stream[Entry]]:
    if isinstance(spec, TextFiles) or (isinstance(spec, OwnFiles) and spec.type == "csv"):
        return [sources.iterated(spec).documents()]
    reader = sources.ranged(spec)
    return [Stream(piece.source, reader.documents(piece)) for piece in reader.ranges()]
