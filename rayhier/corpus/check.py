"""Checks of a source, row by row: which rows are accepted, and why the others are rejected."""

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from rayhier.spec.corpus import Columns, FieldType, Limits

DIGEST_BYTES = 16
LONGEST_LINE = 64 << 20
"""Longest line in bytes. Readers of lines stop here, so that one endless line cannot fill the memory."""
SHOWN = 80
"""Characters of a rejected row that are kept."""
HEADER = ("query-id", "corpus-id", "score")

T = TypeVar("T")


class Reason(StrEnum):
    """Reasons to reject a row, as rejected.parquet and record.json write them."""

    LINE_TOO_LONG = "line too long"
    INVALID_UTF8 = "invalid UTF-8"
    NOT_JSON = "not JSON"
    NOT_AN_OBJECT = "not an object"
    MISSING_ID = "missing id"
    MISSING_TEXT = "missing key of the text"
    WRONG_TYPE = "wrong type"
    WRONG_FIELD = "field of the wrong type"
    ID_TOO_LONG = "id too long"
    EMPTY_TEXT = "empty text"
    TEXT_TOO_LONG = "text too long"
    DUPLICATE_ID = "duplicate id"
    WRONG_COLUMNS = "wrong number of columns"
    UNKNOWN_QUERY = "unknown query"
    UNKNOWN_DOCUMENT = "unknown document"
    DUPLICATE_JUDGEMENT = "duplicate judgement"
    DUPLICATE_PAIR = "duplicate pair"
    NOT_PYTHON = "not Python"
    SUMMARY_ONLY = "summary only"
    SHORT_REST = "rest under 40 characters"
    CONTAINS_QUERY = "document contains its query"
    REPEATED_TEXT = "repeated text"


@dataclass(frozen=True)
class Rules:
    """Limits, column names and declared fields by which a row becomes a document or a query."""

    limits: Limits
    columns: Columns
    fields: Mapping[str, FieldType]
    query_columns: Columns | None = None
    """Columns of queries; None: those of documents."""

    @property
    def of_queries(self) -> Columns:
        """Columns that hold a query's id and text."""
        return self.columns if self.query_columns is None else self.query_columns


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected row, as written to rejected.parquet."""

    reason: Reason
    value: str
    """Beginning of the row, or of its id."""


def beginning(value: object) -> str:
    r"""Return the first 80 characters of a value in a single line; unprintable ones and invalid UTF-8 are escaped.

    >>> print(beginning(b"caf\xe9\tau lait\n"))
    caf\xe9\tau lait
    """
    if isinstance(value, bytes):
        text = value[: 4 * SHOWN + 4].decode("utf-8", "backslashreplace").rstrip("\r\n")
    else:
        text = str(value)
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[: SHOWN + 1]
    )
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"


class RowError(ValueError):
    """Raised for a row that must be rejected, with the reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Entry:
    """A document or a query; the title of a query is empty."""

    key: str
    """doc_id or query_id."""
    title: str
    text: str
    cut: bool
    """True if title or text was cut to its limit."""
    values: tuple[Any, ...] = ()
    """Values of the declared fields, in the order of the spec; None where the row has no value."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A query, a document and a grade; above 0, the document is relevant."""

    query_id: str
    doc_id: str
    grade: int


@dataclass(frozen=True, slots=True)
class Pair:
    """A generated query and the document that it was written for."""

    query: str
    doc_id: str


@dataclass(frozen=True, slots=True)
class ParsedRows(Generic[T]):
    """Rows of one file, or of one range of a file, with their 1-based line numbers."""

    lines: int
    """Number of lines, blank ones included."""
    read: int
    """Number of rows: lines that are neither blank nor a header."""
    accepted: list[tuple[int, T]]
    rejected: list[tuple[int, Rejection]]


def digest(text: str) -> bytes:
    """BLAKE2b hash of an id or a text, 16 bytes."""
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def entry(key: str, title: str, text: str, limits: Limits, values: tuple[Any, ...] = ()) -> Entry:
    """Make an entry with title and text cut to their limits; RowError where both are blank."""
    cut = len(title) > limits.title or len(text) > limits.text
    kept = Entry(key, title[: limits.title], text[: limits.text], cut, values)
    if not kept.title.strip() and not kept.text.strip():
        raise RowError(Reason.EMPTY_TEXT)
    return kept


def document(row: Mapping[str, Any], rules: Rules) -> Entry:
    """Make a document from the columns that `rules.columns` names, with its declared fields.

    Title or text may be missing or null, but a document is rejected as empty where both are blank.
    """
    names = rules.columns
    values = tuple(_value(row.get(name), kind) for name, kind in rules.fields.items())
    title, text = _string(row, names.title), _string(row, names.text)
    return entry(_key(row, names.id, rules.limits), title, text, rules.limits, values)


def query(row: Mapping[str, Any], rules: Rules) -> Entry:
    """Make a query from an id and a text; a blank text is rejected as empty."""
    names = rules.of_queries
    key = _key(row, names.id, rules.limits)
    if names.text not in row:
        raise RowError(Reason.MISSING_TEXT)
    return entry(key, "", _string(row, names.text), rules.limits)


def judgement(query_id: str, doc_id: str, grade: str) -> Judgement:
    """Make a judgement; RowError where the grade is not a whole number of 32 bits."""
    grade = grade.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", grade) or abs(int(grade)) >= 2**31:
        raise RowError(Reason.WRONG_TYPE)
    return Judgement(query_id, doc_id, int(grade))


def judgement_row(row: Mapping[str, Any]) -> Judgement:
    """Make a judgement from BEIR's columns: ids as text or whole numbers, the grade a whole number."""
    query_id, doc_id = (_id(row, name) for name in HEADER[:2])
    grade = row.get(HEADER[2])
    if isinstance(grade, float) and grade.is_integer():
        grade = int(grade)
    if isinstance(grade, bool) or not isinstance(grade, int | str):
        raise RowError(Reason.WRONG_TYPE)
    return judgement(query_id, doc_id, str(grade))


def pair(row: Mapping[str, Any], limits: Limits) -> Pair:
    """Make a pair of `query` and `doc_id`; RowError where either is missing or the query is longer than a limit."""
    query = _string(row, "query").strip()
    if not query:
        raise RowError(Reason.EMPTY_TEXT)
    if len(query) > limits.text:
        raise RowError(Reason.TEXT_TOO_LONG)
    return Pair(query, _key(row, "doc_id", limits))


def count(read: int, accepted: int, rejected: Mapping[str, int]) -> dict[str, Any]:
    """Count rows for record.json, with reasons of rejection, most frequent first; accepted + rejected = read."""
    if accepted + sum(rejected.values()) != read:
        raise RuntimeError(f"{accepted} accepted and {dict(rejected)} rejected, but {read} read")
    reasons = sorted(rejected.items(), key=lambda pair: (-pair[1], pair[0]))
    return {"read": read, "accepted": accepted, "rejected": {str(reason): number for reason, number in reasons}}


def split(line: bytes, columns: int) -> list[str]:
    """Split a line at tabs; RowError where the number of values is not `columns`."""
    values = decode(line).rstrip("\r\n").split("\t")
    if len(values) != columns:
        raise RowError(Reason.WRONG_COLUMNS)
    return values


def decode(line: bytes) -> str:
    """Decode a line; RowError where the line is too long or not valid UTF-8."""
    if len(line) > LONGEST_LINE:
        raise RowError(Reason.LINE_TOO_LONG)
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RowError(Reason.INVALID_UTF8) from None


def json_row(line: bytes) -> dict[str, Any]:
    """Parse a line as a JSON object; RowError where the line holds anything else."""
    text = decode(line)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise RowError(Reason.NOT_JSON) from None
    if not isinstance(value, dict):
        raise RowError(Reason.NOT_AN_OBJECT)
    return value


def _string(row: Mapping[str, Any], name: str) -> str:
    """Text of a column, "" where it is missing or null; RowError where it is not valid text."""
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RowError(Reason.WRONG_TYPE)
    if not encodes(value):
        raise RowError(Reason.INVALID_UTF8)
    return value


def _id(row: Mapping[str, Any], name: str) -> str:
    """Id of a row as text; a whole number is accepted too."""
    value = row.get(name)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _string(row, name)


def _key(row: Mapping[str, Any], name: str, limits: Limits) -> str:
    value = _id(row, name)
    if not value.strip():
        raise RowError(Reason.MISSING_ID)
    if len(value) > limits.id:
        raise RowError(Reason.ID_TOO_LONG)
    return value


def _value(value: Any, kind: FieldType) -> Any:
    """Value of a declared field, None where it is missing; RowError where it has another type."""
    if value is None:
        return None
    if not _is_a(value, kind):
        raise RowError(Reason.WRONG_FIELD)
    return float(value) if kind == "float" else value


def _is_a(value: Any, kind: FieldType) -> bool:
    """Return True if a value has a field's type.

    An int is a float too, a bool is no number; NaN, infinity, an `int` beyond 64 bits and invalid text fit no type.
    """
    if kind == "string":
        return isinstance(value, str) and encodes(value)
    if kind == "bool" or isinstance(value, bool):
        return kind == "bool" and isinstance(value, bool)
    if kind == "int":
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def encodes(text: str) -> bool:
    """Return True if a text can be written as UTF-8; unpaired surrogates, as JSON can yield, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
