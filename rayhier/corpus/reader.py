"""Interfaces of the readers of all sources. A reader checks rows one by one."""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from rayhier.corpus.row_checks import Entry, Judgement, ParsedRows, Reason, Rejection, RowError, beginning, digest

Raw = TypeVar("Raw")
T = TypeVar("T")

Rows = Iterator[T | Rejection | None]
"""For each line, in order: the parsed row, its rejection, or None for a blank line or a header."""


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a source, whose documents become one part file.

    [begin, end) counts bytes of a file of lines, row groups of a parquet file, or rows of an iterated source.
    """

    part: int
    source: str
    path: str
    begin: int
    end: int


@dataclass(frozen=True)
class Stream(Generic[T]):
    source: str
    rows: Rows[T]
    path: Path | None = None
    allowed: str = ""


class Reader(Protocol):
    def queries(self) -> Iterable[Stream[Entry]]: ...

    def judgements(self, split: str) -> Iterable[Stream[Judgement]]: ...


class RangeReader(Reader, Protocol):
    """A source whose documents lie in files. Several processes read ranges of the files."""

    def ranges(self) -> list[Range]: ...

    def documents(self, piece: Range) -> Rows[Entry]: ...


class StreamReader(Reader, Protocol):
    """A source whose documents can only be iterated from the start, by one process."""

    def documents(self) -> Stream[Entry]: ...


def checked(raw: Iterable[Raw | None], parse: Callable[[Raw], T]) -> Rows[T]:
    """Yield each raw row parsed by `parse`, or a Rejection if `parse` raises RowError."""
    for value in raw:
        try:
            yield None if value is None else parse(value)
        except RowError as error:
            yield Rejection(error.reason, beginning(value))


def distinct(rows: Rows[Entry], earlier: set[bytes]) -> Rows[Entry]:
    """Reject documents or queries whose id's digest is in `earlier`. Adds the digests of accepted rows to `earlier`."""
    for row in rows:
        if not isinstance(row, Entry):
            yield row
        elif (key := digest(row.key)) in earlier:
            yield Rejection(Reason.DUPLICATE_ID, beginning(row.key))
        else:
            earlier.add(key)
            yield row


def known(
    rows: Rows[Judgement], queries: Container[str], documents: Container[str] | None, earlier: set[bytes]
) -> Rows[Judgement]:
    """Reject judgements of unknown queries or documents, and pairs in `earlier`. Adds accepted pairs to `earlier`."""
    for row in rows:
        if not isinstance(row, Judgement):
            yield row
        elif row.query_id not in queries:
            yield Rejection(Reason.UNKNOWN_QUERY, _shown(row))
        elif documents is not None and row.doc_id not in documents:
            yield Rejection(Reason.UNKNOWN_DOCUMENT, _shown(row))
        elif (pair := digest(row.query_id) + digest(row.doc_id)) in earlier:
            yield Rejection(Reason.DUPLICATE_JUDGEMENT, _shown(row))
        else:
            earlier.add(pair)
            yield row


def _shown(judgement: Judgement) -> str:
    return beginning(f"{judgement.query_id} {judgement.doc_id} {judgement.grade}")


def collect(rows: Rows[T]) -> ParsedRows[T]:
    accepted: list[tuple[int, T]] = []
    rejected: list[tuple[int, Rejection]] = []
    line = 0
    for line, row in enumerate(rows, 1):
        if isinstance(row, Rejection):
            rejected.append((line, row))
        elif row is not None:
            accepted.append((line, row))
    return ParsedRows(line, len(accepted) + len(rejected), accepted, rejected)
