"""Check a source row by row: accept a row, or reject it for a reason."""

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from rayhier.spec.corpus import ColumnNames, FieldType, Limits
from rayhier.storage.source import JUDGED

DIGEST_BYTES = 16
LONGEST_LINE = 64 << 20
"""Largest number of bytes of a line. The limit keeps an endless line from filling the memory."""
SHOWN = 80
"""Largest number of characters of a rejected row that users see."""
HEADER = JUDGED

T = TypeVar("T")


class Reason(StrEnum):
    """Reason to reject a row, as rejected.parquet and record.json write it."""

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
    LINK = "symbolic link"


@dataclass(frozen=True)
class RowSchema:
    """Limits, column names and declared fields by which a row becomes a document or a query."""

    limits: Limits
    columns: ColumnNames
    fields: Mapping[str, FieldType]
    query_columns: ColumnNames | None = None

    @property
    def of_queries(self) -> ColumnNames:
        return self.columns if self.query_columns is None else self.query_columns

    def document(self, row: Mapping[str, Any]) -> "Entry":
        """Make a document from a row. RowError if title and text are blank, or the id or a value is not allowed."""
        values = tuple(_value(row.get(name), kind) for name, kind in self.fields.items())
        title, text = _string(row, self.columns.title), _string(row, self.columns.text)
        return entry(_key(row, self.columns.id, self.limits), title, text, self.limits, values)

    def query(self, row: Mapping[str, Any]) -> "Entry":
        """Make a query from a row. RowError if the text is blank, or the id or text is not allowed."""
        names = self.of_queries
        key = _key(row, names.id, self.limits)
        if names.text not in row:
            raise RowError(Reason.MISSING_TEXT)
        return entry(key, "", _string(row, names.text), self.limits)


@dataclass(frozen=True, slots=True)
class Rejection:
    reason: Reason
    value: str


def beginning(value: object) -> str:
    r"""Return the first 80 characters of a value in one line. Unprintable characters and invalid UTF-8 are escaped.

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
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Entry:
    """An accepted document or query. The title of a query is empty."""

    key: str
    title: str
    text: str
    cut: bool
    """True if the title or text was longer than its limit and was cut."""
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    query_id: str
    doc_id: str
    grade: int


@dataclass(frozen=True, slots=True)
class Pair:
    query: str
    doc_id: str


@dataclass(frozen=True, slots=True)
class ParsedRows(Generic[T]):
    """Accepted and rejected rows of a file, or of a range of a file. Line numbers count from 1."""

    lines: int
    read: int
    """Number of lines without blank lines and the header."""
    accepted: list[tuple[int, T]]
    rejected: list[tuple[int, Rejection]]


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def entry(key: str, title: str, text: str, limits: Limits, values: tuple[Any, ...] = ()) -> Entry:
    """Make a document or query, with title and text cut to their limits. RowError if both are blank."""
    cut = len(title) > limits.title or len(text) > limits.text
    accepted = Entry(key, title[: limits.title], text[: limits.text], cut, values)
    if not accepted.title.strip() and not accepted.text.strip():
        raise RowError(Reason.EMPTY_TEXT)
    return accepted


def judgement(query_id: str, doc_id: str, grade: str) -> Judgement:
    """Make a judgement from texts. RowError if the grade is not a whole number of 32 bits."""
    grade = grade.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", grade) or abs(int(grade)) >= 2**31:
        raise RowError(Reason.WRONG_TYPE)
    return Judgement(query_id, doc_id, int(grade))


def judgement_row(row: Mapping[str, Any]) -> Judgement:
    """Make a judgement from a row with BEIR's columns. RowError if a value has another type."""
    query_id, doc_id = (_id(row, name) for name in HEADER[:2])
    grade = row.get(HEADER[2])
    if isinstance(grade, float) and grade.is_integer():
        grade = int(grade)
    if isinstance(grade, bool) or not isinstance(grade, int | str):
        raise RowError(Reason.WRONG_TYPE)
    return judgement(query_id, doc_id, str(grade))


def pair(row: Mapping[str, Any], limits: Limits) -> Pair:
    """Make a pair from a row's `query` and `doc_id`. RowError if either is missing or longer than its limit."""
    query = _string(row, "query").strip()
    if not query:
        raise RowError(Reason.EMPTY_TEXT)
    if len(query) > limits.text:
        raise RowError(Reason.TEXT_TOO_LONG)
    return Pair(query, _key(row, "doc_id", limits))


def count(read: int, accepted: int, rejected: Mapping[str, int]) -> dict[str, Any]:
    if accepted + sum(rejected.values()) != read:
        raise RuntimeError(f"{accepted} accepted and {dict(rejected)} rejected, but {read} read")
    reasons = sorted(rejected.items(), key=lambda pair: (-pair[1], pair[0]))
    return {"read": read, "accepted": accepted, "rejected": {str(reason): number for reason, number in reasons}}


def split(line: bytes, columns: int) -> list[str]:
    values = decode(line).rstrip("\r\n").split("\t")
    if len(values) != columns:
        raise RowError(Reason.WRONG_COLUMNS)
    return values


def decode(line: bytes) -> str:
    if len(line) > LONGEST_LINE:
        raise RowError(Reason.LINE_TOO_LONG)
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RowError(Reason.INVALID_UTF8) from None


def json_row(line: bytes) -> dict[str, Any]:
    text = decode(line)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise RowError(Reason.NOT_JSON) from None
    if not isinstance(value, dict):
        raise RowError(Reason.NOT_AN_OBJECT)
    return value


def _string(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RowError(Reason.WRONG_TYPE)
    if not encodes(value):
        raise RowError(Reason.INVALID_UTF8)
    return value


def _id(row: Mapping[str, Any], name: str) -> str:
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
    match kind, value:
        case _, None:
            return None
        case "string", str() if encodes(value):
            return value
        case "bool", bool():
            return value
        case _, bool():
            pass
        case "int", int() if -(2**63) <= value < 2**63:
            return value
        case "float", int() | float() if abs(value) <= sys.float_info.max:  # not NaN
            return float(value)
    raise RowError(Reason.WRONG_FIELD)


def encodes(text: str) -> bool:
    """Return True if a text can be encoded in UTF-8. A text from JSON may contain half a character (a surrogate)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
