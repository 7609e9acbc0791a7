"""Queries and judgements of a source, read and checked against each other and the documents by the driver process."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from rayhier.corpus import tables
from rayhier.corpus.check import Entry, Judgement, ParsedRows, Reason
from rayhier.corpus.lines import refusal
from rayhier.corpus.rows import Reader, Stream, collect, distinct, known
from rayhier.storage.listing import SPLITS

T = TypeVar("T")

Files = Sequence[tuple[str, ParsedRows[T]]]
"""Accepted and rejected rows of each file, with the file's name in rejected.parquet."""


@dataclass(frozen=True)
class Questions:
    """Accepted and rejected queries and judgements of a source, file by file."""

    queries: Files[Entry]
    judgements: Mapping[str, Files[Judgement]]
    """Split -> rows of each of its files."""

    @property
    def accepted_queries(self) -> list[Entry]:
        """Accepted queries of all files."""
        return [query for _, parsed in self.queries for _, query in parsed.accepted]

    @property
    def accepted_judgements(self) -> dict[str, list[Judgement]]:
        """Accepted judgements of all files: split -> judgements."""
        return {
            split: [judgement for _, parsed in by_file for _, judgement in parsed.accepted]
            for split, by_file in self.judgements.items()
        }

    def rejected(self) -> Iterable[pa.Table]:
        """Yield the rejected rows of queries and judgements, a table for each file."""
        kinds: list[Files[Any]] = [self.queries, *self.judgements.values()]
        for by_file in kinds:
            for name, parsed in by_file:
                yield tables.rejected((name, *row) for row in parsed.rejected)

    def counts(self) -> dict[str, Any]:
        """Return the counts of queries and judgements for record.json: read, accepted, rejected by reason."""
        return {
            "queries": tables.count_entries(_read(self.queries), self.accepted_queries, _reasons(self.queries)),
            "judgements": {
                split: tables.count(_read(rows), self.accepted_judgements[split], _reasons(rows))
                for split, rows in self.judgements.items()
            },
        }


def read(reader: Reader, documents: Container[str]) -> Questions:
    """Read the queries of a source, each id once, and judgements of these and `documents`, each pair once in a split.

    Raises InputError for a file in which no row has the right number of columns.
    """
    earlier: set[bytes] = set()
    queries = [(stream.source, _whole(stream, collect(distinct(stream.rows, earlier)))) for stream in reader.queries()]
    ids = {query.key for _, parsed in queries for _, query in parsed.accepted}
    judgements = {}
    for split in SPLITS:
        pairs: set[bytes] = set()
        judgements[split] = [
            (stream.source, _whole(stream, collect(known(stream.rows, ids, documents, pairs))))
            for stream in reader.judgements(split)
        ]
    return Questions(queries, judgements)


def _whole(stream: Stream[T], parsed: ParsedRows[T]) -> ParsedRows[T]:
    misshapen = [line for line, rejection in parsed.rejected if rejection.reason == Reason.WRONG_COLUMNS]
    if stream.path is not None and 0 < len(misshapen) == parsed.read:
        raise refusal(stream.path, stream.allowed)
    return parsed


def _read(rows: Files[Any]) -> int:
    return sum(parsed.read for _, parsed in rows)


def _reasons(rows: Files[Any]) -> list[Reason]:
    return [rejection.reason for _, parsed in rows for _, rejection in parsed.rejected]
