"""Interface of all sources: rows of a file, of a range of a file, or of an iterator, checked one by one."""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from rayhier.corpus.check import Entry, Judgement, ParsedRows, Reason, Rejection, RowError, beginning, digest

Raw = TypeVar("Raw")
T = TypeVar("T")

Rows = Iterator[T | Rejection | None]
"""For each line, in order: the parsed row, its rejection, or None for a line that is no row (blank, header)."""


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a source that becomes one part.

    [begin, end) counts bytes of a file of lines, row groups of a parquet file, or rows of an iterated source.
    """

    part: int
    source: str
    """Name of the file or data set in rejected.parquet."""
    path: str
    begin: int
    end: int


@dataclass(frozen=True)
class Stream(Generic[T]):
    """Rows of a file, or of a data set, with its name."""

    source: str
    """Name of the file or data set in rejected.parquet."""
    rows: Rows[T]
    path: Path | None = None
    """Path of the file, if it is a file of lines."""
    allowed: str = ""
    """Description of a valid line, for messages."""


class Reader(Protocol):
    """Queries and judgements of a source."""

    def queries(self) -> Iterable[Stream[Entry]]:
        """All queries, by file."""
        ...

    def judgements(self, split: str) -> Iterable[Stream[Judgement]]:
        """Judgements of a split, by file; none where it has none."""
        ...


class RangeReader(Reader, Protocol):
    """A source whose documents lie in files, read range by range by as many tasks as there are workers."""

    def ranges(self) -> list[Range]:
        """All documents, in order, each in one range."""
        ...

    def documents(self, span: Range) -> Rows[Entry]:
        """Documents of one range."""
        ...


class StreamReader(Reader, Protocol):
    """A source whose documents can only be iterated, by one process."""

    def documents(self) -> Stream[Entry]:
        """All documents."""
        ...


def checked(raw: Iterable[Raw | None], parse: Callable[[Raw], T]) -> Rows[T]:
    """Yield rows parsed by `parse`; where `parse` raises RowError, the row becomes a Rejection with that reason."""
    for value in raw:
        try:
            yield None if value is None else parse(value)
        except RowError as error:
            yield Rejection(error.reason, beginning(value))


def distinct(rows: Rows[Entry], earlier: set[bytes]) -> Rows[Entry]:
    """Reject entries whose id has its digest in `earlier`; the digests of the others are added to `earlier`."""
    for row in rows:
        if not isinstance(row, Entry):
            yield row
        elif (key := digest(row.key)) in earlier:
            yield Rejection(Reason.DUPLICATE_ID, beginning(row.key))
        else:
            earlier.add(key)
            yield row


def known(
    rows: Rows[Judgement], queries: Container[str], documents: Container[str], earlier: set[bytes]
) -> Rows[Judgement]:
    """Reject judgements of unknown queries or documents, and pairs whose digest is in `earlier`; add other digests."""
    for row in rows:
        if not isinstance(row, Judgement):
            yield row
        elif row.query_id not in queries:
            yield Rejection(Reason.UNKNOWN_QUERY, _shown(row))
        elif row.doc_id not in documents:
            yield Rejection(Reason.UNKNOWN_DOCUMENT, _shown(row))
        elif (pair := digest(row.query_id) + digest(row.doc_id)) in earlier:
            yield Rejection(Reason.DUPLICATE_JUDGEMENT, _shown(row))
        else:
            earlier.add(pair)
            yield row


def _shown(judgement: Judgement) -> str:
    return beginning(f"{judgement.query_id} {judgement.doc_id} {judgement.grade}")


def collect(rows: Rows[T]) -> ParsedRows[T]:
    """Read all rows into memory, accepted and rejected, with their lines."""
    accepted: list[tuple[int, T]] = []
    rejected: list[tuple[int, Rejection]] = []
    line = 0
    for line, row in enumerate(rows, 1):
        if isinstance(row, Rejection):
            rejected.append((line, row))
        elif row is not None:
            accepted.append((line, row))
    return ParsedRows(line, len(accepted) + len(rejected), accepted, rejected)
