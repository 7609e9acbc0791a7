"""Read text files with a row per line. Lines are bytes, so that an invalid line rejects only one row."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from rayhier.corpus import row_checks
from rayhier.corpus.reader import Range, Rows, Stream, checked
from rayhier.corpus.row_checks import HEADER, LONGEST_LINE, Entry, Judgement, RowError, RowSchema
from rayhier.spec import InputError
from rayhier.spec.corpus import ColumnNames, Limits
from rayhier.storage.listing import CorpusFiles, NamedFile

SMALLEST_RANGE = 1 << 20
MOST_RANGES = 1024
SKIP = 1 << 20
LINE_SHOWN = 60
TREC_COLUMNS, ITERATIONS = 4, ("0", "Q0")
"""Number of columns of TREC's judgements, and the values of the second column."""

T = TypeVar("T")


@dataclass(frozen=True)
class Format(Generic[T]):
    parse: Callable[[bytes], T]
    allowed: str
    """Description of a valid line, for error messages."""
    header: tuple[str, ...] = ()
    """Column names that the first line may have instead of a row."""


def ranges(files: Iterable[NamedFile]) -> list[Range]:
    """Divide files into ranges of lines. A range becomes one part of the documents."""
    found: list[Range] = []
    for file in files:
        cuts = pieces(file.path.stat().st_size)
        found += [Range(len(found) + n, file.name, str(file.path), *cut) for n, cut in enumerate(cuts)]
    return found


def documents(piece: Range, form: Format[Entry]) -> Rows[Entry]:
    return checked(rows(lines(Path(piece.path), piece.begin, piece.end)), form.parse)


def whole(file: NamedFile, form: Format[T]) -> Stream[T]:
    raw = rows(lines(file.path, 0, file.path.stat().st_size), form.header)
    return Stream(file.name, checked(raw, form.parse), file.path, form.allowed)


def table(columns: int, allowed: str, parse: Callable[[list[str]], T]) -> Format[T]:
    return Format(lambda line: parse(row_checks.split(line, columns)), f"{columns} columns split by tabs: {allowed}")


def judgement(line: bytes) -> Judgement:
    """Make a judgement from BEIR's three columns or TREC's four. RowError if the line has neither."""
    text = row_checks.decode(line).rstrip("\r\n")
    for values in (text.split("\t"), text.split()):
        if len(values) == len(HEADER):
            return row_checks.judgement(*values)
        if len(values) == TREC_COLUMNS and values[1] in ITERATIONS:
            return row_checks.judgement(values[0], *values[2:])
    raise RowError(row_checks.Reason.WRONG_COLUMNS)


JUDGEMENTS = Format(judgement, "BEIR's three columns, or TREC's four, split by tabs or blanks", HEADER)


def json_objects(parse: Callable[[dict[str, Any]], T], columns: ColumnNames) -> Format[T]:
    """Make the format of lines of JSON objects. `parse` makes a document or a query of an object."""
    return Format(lambda line: parse(row_checks.json_row(line)), f"a JSON object with {columns.id} and {columns.text}")


def refusal(path: Path, allowed: str) -> InputError:
    number, first = next((n, line) for n, line in enumerate(lines(path, 0, path.stat().st_size), 1) if line.strip())
    text = first.decode("utf-8", "replace").rstrip("\r\n")
    shown = text if len(text) <= LINE_SHOWN else text[:LINE_SHOWN] + "…"
    return InputError(
        f"{path}: line {number}: got {shown!r}, and no line has the right number of columns; allowed: {allowed}"
    )


def pieces(size: int) -> list[tuple[int, int]]:
    """Cut a file of `size` bytes into 1 to 1,024 ranges [begin, end). All ranges but the last have at least 1 MiB."""
    step = max(SMALLEST_RANGE, -(-size // MOST_RANGES))
    return [(begin, min(begin + step, size)) for begin in range(0, max(size, 1), step)]


def rows(raw: Iterable[bytes], header: tuple[str, ...] = ()) -> Iterator[bytes | None]:
    """Yield each line, or None for a blank line and for a header."""
    for number, line in enumerate(raw):
        yield None if line.isspace() or (number == 0 and header and values(line) == header) else line


def values(line: bytes) -> tuple[str, ...]:
    return tuple(line.decode("utf-8-sig", "replace").rstrip("\r\n").split("\t"))


def lines(path: Path, begin: int, end: int) -> Iterator[bytes]:
    """Yield the lines that begin in bytes [begin, end) of a file, with their newline, cut to LONGEST_LINE + 1 bytes."""
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
    """Skip to the end of the line, or a little past `most` bytes. Returns the number of skipped bytes."""
    skipped = 0
    while skipped <= most and (chunk := readline(SKIP)):
        skipped += len(chunk)
        if chunk.endswith(b"\n"):
            break
    return skipped


@dataclass(frozen=True)
class MsMarcoReader:
    listing: CorpusFiles
    document: Format[Entry]
    query: Format[Entry]

    @classmethod
    def of(cls, listing: CorpusFiles, limits: Limits) -> Self:
        schema = RowSchema(limits, ColumnNames(), {})
        document = table(2, "id, text", lambda row: schema.document(dict(zip(("id", "text"), row, strict=True))))
        query = table(2, "id, text", lambda row: schema.query(dict(zip(("id", "text"), row, strict=True))))
        return cls(listing, document, query)

    def ranges(self) -> list[Range]:
        return ranges(self.listing.documents)

    def documents(self, piece: Range) -> Rows[Entry]:
        return documents(piece, self.document)

    def queries(self) -> Iterator[Stream[Entry]]:
        for file in self.listing.queries:
            yield whole(file, self.query)

    def judgements(self, split: str) -> Iterator[Stream[Judgement]]:
        if split in self.listing.judgements:
            yield whole(self.listing.judgements[split], JUDGEMENTS)
