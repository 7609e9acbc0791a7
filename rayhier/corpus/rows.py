"""What every source hands over: rows, checked one by one, of a file, a range of it, or whatever iterates."""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from rayhier.corpus.check import Entry, Judgement, Parsed, Reason, Rejected, RowError, beginning, digest

Raw = TypeVar("Raw")
T = TypeVar("T")

Rows = Iterator[T | Rejected | None]
"""For each line of a file, from the first: what it holds, why it is rejected, or None where it is no row at all."""


@dataclass(frozen=True, slots=True)
class Range:
    """The documents of one part.

    [begin, end) are bytes of a file of lines, row groups of a parquet file, or rows of what only iterates.
    """

    part: int
    source: str
    """Name of the file in rejected.parquet."""
    path: str
    begin: int
    end: int


@dataclass(frozen=True)
class Stream(Generic[T]):
    """Rows that are read in one go."""

    source: str
    """Name of the file in rejected.parquet."""
    rows: Rows[T]
    path: Path | None = None
    """The file, where it is one of lines."""
    allowed: str = ""
    """What a line must hold."""


class Reader(Protocol):
    """Queries and judgements of a source."""

    def queries(self) -> Iterable[Stream[Entry]]:
        """All queries, by file."""
        ...

    def judgements(self, split: str) -> Iterable[Stream[Judgement]]:
        """Judgements of a split, by file; none where it has none."""
        ...


class Ranged(Reader, Protocol):
    """A source whose documents lie in files, read range by range by as many tasks as there are workers."""

    def ranges(self) -> list[Range]:
        """All documents, in order, each in one range."""
        ...

    def documents(self, span: Range) -> Rows[Entry]:
        """Those of one range."""
        ...


class Iterated(Reader, Protocol):
    """A source whose documents come one after another."""

    def documents(self) -> Stream[Entry]:
        """All of them."""
        ...


def checked(raw: Iterable[Raw | None], parse: Callable[[Raw], T]) -> Rows[T]:
    """Parse row by row; what `parse` refuses with RowError becomes its reason."""
    for one in raw:
        try:
            yield None if one is None else parse(one)
        except RowError as error:
            yield Rejected(error.reason, beginning(one))


def distinct(rows: Rows[Entry], seen: set[bytes]) -> Rows[Entry]:
    """Reject entries whose id stands in `seen`, as digests; adds those that stay."""
    for one in rows:
        if not isinstance(one, Entry):
            yield one
        elif (key := digest(one.key)) in seen:
            yield Rejected(Reason.DUPLICATE_ID, beginning(one.key))
        else:
            seen.add(key)
            yield one


def known(
    rows: Rows[Judgement], queries: Container[str], documents: Container[str], seen: set[bytes]
) -> Rows[Judgement]:
    """Reject judgements of unknown queries or documents, and pairs that stand in `seen`; adds those that stay."""
    for one in rows:
        if not isinstance(one, Judgement):
            yield one
        elif one.query_id not in queries:
            yield Rejected(Reason.UNKNOWN_QUERY, _shown(one))
        elif one.doc_id not in documents:
            yield Rejected(Reason.UNKNOWN_DOCUMENT, _shown(one))
        elif (pair := digest(one.query_id) + digest(one.doc_id)) in seen:
            yield Rejected(Reason.DUPLICATE_JUDGEMENT, _shown(one))
        else:
            seen.add(pair)
            yield one


def _shown(one: Judgement) -> str:
    return beginning(f"{one.query_id} {one.doc_id} {one.grade}")


def collect(rows: Rows[T]) -> Parsed[T]:
    """All rows in memory, accepted and rejected, by line."""
    accepted: list[tuple[int, T]] = []
    rejected: list[tuple[int, Rejected]] = []
    line = 0
    for line, one in enumerate(rows, 1):
        if isinstance(one, Rejected):
            rejected.append((line, one))
        elif one is not None:
            accepted.append((line, one))
    return Parsed(line, len(accepted) + len(rejected), accepted, rejected)
