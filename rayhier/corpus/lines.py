"""Text files with a row per line, read as bytes, so that a broken line costs a single rejected row."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from rayhier.corpus import check
from rayhier.corpus.check import LONGEST_LINE, Entry, Judgement, Rules
from rayhier.corpus.rows import Range, Rows, Stream, checked
from rayhier.spec import InputError
from rayhier.storage.listing import Listing, NamedFile

SMALLEST_RANGE = 1 << 20
MOST_RANGES = 1024
SKIP = 1 << 20
LINE_SHOWN = 60

T = TypeVar("T")


@dataclass(frozen=True)
class Format(Generic[T]):
    """Format of a file's lines."""

    parse: Callable[[bytes], T]
    """Function that parses a line; raises RowError where the line has another format."""
    allowed: str
    """Description of a valid line, for messages."""
    header: tuple[str, ...] = ()
    """Column names that the first line may hold instead of a row."""


@dataclass(frozen=True)
class LinesReader:
    """A source whose documents, queries and judgements lie in files of lines."""

    listing: Listing
    document: Format[Entry]
    query: Format[Entry]
    judgement: Format[Judgement]

    def ranges(self) -> list[Range]:
        """Byte ranges of all files of documents; see `pieces` for their sizes."""
        ranges: list[Range] = []
        for file in self.listing.documents:
            cuts = pieces(file.path.stat().st_size)
            ranges += [Range(len(ranges) + n, file.name, str(file.path), *cut) for n, cut in enumerate(cuts)]
        return ranges

    def documents(self, span: Range) -> Rows[Entry]:
        """Documents whose lines begin in the range."""
        return checked(rows(lines(Path(span.path), span.begin, span.end)), self.document.parse)

    def queries(self) -> Iterator[Stream[Entry]]:
        """Queries, file by file."""
        for file in self.listing.queries:
            yield whole(file, self.query)

    def judgements(self, split: str) -> Iterator[Stream[Judgement]]:
        """Judgements of a split, from its file."""
        if split in self.listing.judgements:
            yield whole(self.listing.judgements[split], self.judgement)


def whole(file: NamedFile, form: Format[T]) -> Stream[T]:
    """Stream all rows of a file of some format."""
    raw = rows(lines(file.path, 0, file.path.stat().st_size), form.header)
    return Stream(file.name, checked(raw, form.parse), file.path, form.allowed)


def table(columns: int, allowed: str, parse: Callable[[list[str]], T], header: tuple[str, ...] = ()) -> Format[T]:
    """Format of lines with `columns` values separated by tabs; any other number is rejected."""
    return Format(
        lambda line: parse(check.split(line, columns)),
        f"{columns} columns split by tabs: {allowed}",
        header,
    )


JUDGEMENTS = table(3, ", ".join(check.HEADER), lambda row: check.judgement(*row), check.HEADER)
"""Format of judgements in BEIR's layout; the header is optional."""


def json_lines(listing: Listing, rules: Rules) -> LinesReader:
    """Make a reader of documents and queries as JSON objects, and of judgements in BEIR's layout."""
    keys = rules.columns
    return LinesReader(
        listing,
        Format(
            lambda line: check.document(check.json_row(line), rules), f"a JSON object with {keys.id} and {keys.text}"
        ),
        Format(
            lambda line: check.query(check.json_row(line), rules),
            f"a JSON object with {rules.of_queries.id} and {rules.of_queries.text}",
        ),
        JUDGEMENTS,
    )


def refusal(path: Path, allowed: str) -> InputError:
    """Make the error for a file in which no row has the right number of columns; shows its first non-blank line."""
    number, first = next((n, line) for n, line in enumerate(lines(path, 0, path.stat().st_size), 1) if line.strip())
    text = first.decode("utf-8", "replace").rstrip("\r\n")
    shown = text if len(text) <= LINE_SHOWN else text[:LINE_SHOWN] + "…"
    return InputError(
        f"{path}: line {number}: got {shown!r}, and no line of the file has the right number of columns; "
        f"allowed: {allowed}"
    )


def pieces(size: int) -> list[tuple[int, int]]:
    """Cover a file of `size` bytes with 1 to 1,024 ranges [begin, end) of at least 1 MiB; the last may be smaller."""
    step = max(SMALLEST_RANGE, -(-size // MOST_RANGES))
    return [(begin, min(begin + step, size)) for begin in range(0, max(size, 1), step)]


def rows(raw: Iterable[bytes], header: tuple[str, ...] = ()) -> Iterator[bytes | None]:
    """Yield lines as rows: None for a blank line, and for a first line that is the header."""
    for number, line in enumerate(raw):
        yield None if line.isspace() or (number == 0 and header and values(line) == header) else line


def values(line: bytes) -> tuple[str, ...]:
    """Return the values between the tabs of a line, even where the line is not valid UTF-8."""
    return tuple(line.decode("utf-8-sig", "replace").rstrip("\r\n").split("\t"))


def lines(path: Path, begin: int, end: int) -> Iterator[bytes]:
    """Yield the lines of a file that begin at a byte in [begin, end), newline included.

    A line longer than LONGEST_LINE is cut to its first LONGEST_LINE + 1 bytes.
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


def _skip(readline: Callable[[int], bytes], most: int) -> int:
    """Skip to the end of the line, or a little past `most` bytes; returns the number of bytes read."""
    skipped = 0
    while skipped <= most and (chunk := readline(SKIP)):
        skipped += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return skipped
