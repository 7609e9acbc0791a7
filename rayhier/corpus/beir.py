"""BEIR folders: JSON lines and qrels read as bytes, so that a broken line is one rejected row and nothing more."""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rayhier.corpus.check import (
    LONGEST_LINE,
    Entry,
    Judgement,
    Parsed,
    Reason,
    RowError,
    digest,
    is_header,
    judgement,
)

SMALLEST_RANGE = 1 << 20
MOST_RANGES = 1024
SKIP = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Range:
    """The lines of a file that begin at the bytes [begin, end)."""

    part: int
    begin: int
    end: int


def ranges(size: int) -> list[Range]:
    """Cover a file of `size` bytes: ranges of at least 1 MiB, at most 1,024 of them, at least one."""
    step = max(SMALLEST_RANGE, -(-size // MOST_RANGES))
    return [Range(part, begin, min(begin + step, size)) for part, begin in enumerate(range(0, max(size, 1), step))]


def lines(path: Path, begin: int, end: int) -> Iterator[bytes]:
    """Lines that begin in [begin, end), the newline included.

    One longer than LONGEST_LINE comes as its first LONGEST_LINE + 1 bytes.
    """
    with path.open("rb") as opened:
        position = begin
        if begin > 0:
            opened.seek(begin - 1)
            position += _skip(opened.readline, end - begin) - 1
        while position < end and (line := opened.readline(LONGEST_LINE + 1)):
            position += len(line)
            if len(line) > LONGEST_LINE and not line.endswith(b"\n"):
                position += _skip(opened.readline, end - position)
            yield line


def entries(raw: Iterable[bytes], parse: Callable[[bytes], Entry]) -> Parsed[Entry]:
    """Documents or queries of these lines, each id once. Blank lines count as lines, not as rows."""
    seen: set[bytes] = set()

    def once(line: bytes) -> Entry:
        found = parse(line)
        key = digest(found.key)
        if key in seen:
            raise RowError(Reason.DUPLICATE_ID)
        seen.add(key)
        return found

    return _parsed(enumerate(raw, 1), once)


def judgements(raw: Iterable[bytes], queries: Container[str], documents: Container[str]) -> Parsed[Judgement]:
    """Judgements of these lines, each pair once; the first line may be BEIR's header."""
    seen: set[bytes] = set()

    def once(line: bytes) -> Judgement:
        found = judgement(line, queries, documents)
        pair = digest(found.query_id) + digest(found.doc_id)
        if pair in seen:
            raise RowError(Reason.DUPLICATE_JUDGEMENT)
        seen.add(pair)
        return found

    return _parsed(((n, line) for n, line in enumerate(raw, 1) if n > 1 or not is_header(line)), once)


def _parsed(numbered: Iterable[tuple[int, bytes]], parse: Callable[[bytes], T]) -> Parsed[T]:
    accepted: list[tuple[int, T]] = []
    rejected: list[tuple[int, Reason]] = []
    number = read = 0
    for number, line in numbered:
        if line.isspace():
            continue
        read += 1
        try:
            accepted.append((number, parse(line)))
        except RowError as error:
            rejected.append((number, error.reason))
    return Parsed(number, read, accepted, rejected)


def _skip(readline: Callable[[int], bytes], most: int) -> int:
    """Read up to the end of the line, or a little past `most` bytes; returns the bytes read."""
    skipped = 0
    while skipped <= most and (chunk := readline(SKIP)):
        skipped += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return skipped
