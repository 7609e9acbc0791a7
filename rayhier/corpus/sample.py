"""Read the first rows of a corpus's files, so that a plan tells which rows a run would reject."""

from itertools import islice

from rayhier.corpus import sources
from rayhier.corpus.reader import Stream, collect, distinct
from rayhier.spec.corpus import FileCorpus, OwnFiles, TextFiles

FILES, ROWS = 50, 1_000


def rejected(spec: FileCorpus) -> list[str]:
    """Name the first rejected row in each of the first files of documents, and count rejected rows in a sample."""
    if isinstance(spec, TextFiles) or (isinstance(spec, OwnFiles) and spec.type == "csv"):
        streams = [sources.iterated(spec).documents()]
    else:
        reader = sources.ranged(spec)
        first = {piece.path: piece for piece in reversed(reader.ranges())}
        streams = [Stream(piece.source, reader.documents(piece)) for piece in reversed(first.values())]
    told, earlier = list[str](), set[bytes]()
    for stream in streams[:FILES]:
        rows = collect(islice(distinct(stream.rows, earlier), ROWS))
        for line, rejection in rows.rejected[:1]:
            count = f"{len(rows.rejected):,} of the first {rows.read:,} rows would be rejected"
            told.append(f"{stream.source}: {count}, line {line} for instance: {rejection.reason}: {rejection.value}")
    return told
