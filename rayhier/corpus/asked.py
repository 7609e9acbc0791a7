"""Queries and judgements of a source, checked against each other and against the documents, on the driver."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from rayhier.corpus import tables
from rayhier.corpus.check import Entry, Judgement, Parsed, Reason
from rayhier.corpus.lines import refusal
from rayhier.corpus.rows import Reader, Stream, collect, distinct, known
from rayhier.storage.listing import SPLITS

T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """What was read, by file."""

    queries: Mapping[str, Parsed[Entry]]
    judgements: Mapping[str, Mapping[str, Parsed[Judgement]]]
    """By split."""

    @property
    def accepted_queries(self) -> list[Entry]:
        """All queries."""
        return [one for parsed in self.queries.values() for _, one in parsed.accepted]

    @property
    def accepted_judgements(self) -> dict[str, list[Judgement]]:
        """All judgements, by split."""
        return {
            split: [one for parsed in by_file.values() for _, one in parsed.accepted]
            for split, by_file in self.judgements.items()
        }

    def rejected(self) -> Iterable[pa.Table]:
        """Rejected rows, file by file."""
        files: list[Mapping[str, Parsed[Any]]] = [self.queries, *self.judgements.values()]
        for by_file in files:
            for name, parsed in by_file.items():
                yield tables.rejected((name, *row) for row in parsed.rejected)

    def counts(self) -> dict[str, Any]:
        """Counts for record.json."""
        asked = self.queries.values()
        return {
            "queries": tables.count_entries(_read(asked), self.accepted_queries, _reasons(asked)),
            "judgements": {
                split: tables.count(_read(rows.values()), self.accepted_judgements[split], _reasons(rows.values()))
                for split, rows in self.judgements.items()
            },
        }


def read(reader: Reader, documents: Container[str]) -> Asked:
    """Read queries, each id once, then judgements, each pair once in its split.

    Raises InputError for a file of which no row has the right number of columns.
    """
    seen: set[bytes] = set()
    queries = {one.source: _whole(one, collect(distinct(one.rows, seen))) for one in reader.queries()}
    ids = {one.key for parsed in queries.values() for _, one in parsed.accepted}
    judgements = {}
    for split in SPLITS:
        pairs: set[bytes] = set()
        judgements[split] = {
            one.source: _whole(one, collect(known(one.rows, ids, documents, pairs))) for one in reader.judgements(split)
        }
    return Asked(queries, judgements)


def _whole(stream: Stream[T], parsed: Parsed[T]) -> Parsed[T]:
    misshapen = [line for line, reason in parsed.rejected if reason == Reason.WRONG_COLUMNS]
    if stream.path is not None and 0 < len(misshapen) == parsed.read:
        raise refusal(stream.path, stream.allowed)
    return parsed


def _read(parsed: Iterable[Parsed[Any]]) -> int:
    return sum(one.read for one in parsed)


def _reasons(parsed: Iterable[Parsed[Any]]) -> list[Reason]:
    return [reason for one in parsed for _, reason in one.rejected]
