"""What is accepted of a source, row by row, and why the rest is rejected."""

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
"""Bytes. The readers of lines stop here, so that one endless line cannot fill the memory."""
SHOWN = 80
"""Characters of a rejected row."""
HEADER = ("query-id", "corpus-id", "score")

T = TypeVar("T")


class Reason(StrEnum):
    """Why a row was rejected, as rejected.parquet and record.json say it."""

    LINE_TOO_LONG = "line too long"
    INVALID_UTF8 = "invalid UTF-8"
    NOT_JSON = "not JSON"
    NOT_AN_OBJECT = "not an object"
    MISSING_ID = "missing id"
    WRONG_TYPE = "wrong type"
    WRONG_FIELD = "field of the wrong type"
    ID_TOO_LONG = "id too long"
    EMPTY_TEXT = "empty text"
    DUPLICATE_ID = "duplicate id"
    WRONG_COLUMNS = "wrong number of columns"
    UNKNOWN_QUERY = "unknown query"
    UNKNOWN_DOCUMENT = "unknown document"
    DUPLICATE_JUDGEMENT = "duplicate judgement"
    NOT_PYTHON = "not Python"
    SUMMARY_ONLY = "summary only"
    SHORT_REST = "rest under 40 characters"
    CONTAINS_QUERY = "document contains its query"
    REPEATED_TEXT = "repeated text"


@dataclass(frozen=True)
class Rules:
    """How a row becomes a document or a query."""

    limits: Limits
    columns: Columns
    fields: Mapping[str, FieldType]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is not accepted, as rejected.parquet has it."""

    reason: Reason
    value: str
    """How it begins."""


def beginning(value: object) -> str:
    r"""The first 80 characters of a value, on one line: what does not print, or is no UTF-8, is escaped.

    >>> print(beginning(b"caf\xe9\tau lait\n"))
    caf\xe9\tau lait
    """
    if isinstance(value, bytes):
        text = value[: 4 * SHOWN + 4].decode("utf-8", "backslashreplace").rstrip("\r\n")
    else:
        text = str(value)
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text[: SHOWN + 1])
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"


class RowError(ValueError):
    """A row that is not accepted."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Entry:
    """A document, or a query, whose title is empty."""

    key: str
    """doc_id or query_id."""
    title: str
    text: str
    cut: bool
    """Title or text was longer than the limit and lost its end."""
    values: tuple[Any, ...] = ()
    """Of the declared fields, in their order; None where the row has none."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """How relevant a document is to a query; above 0 is relevant."""

    query_id: str
    doc_id: str
    grade: int


@dataclass(frozen=True, slots=True)
class Parsed(Generic[T]):
    """Rows of one file or one range of it, by 1-based line."""

    lines: int
    """Blank ones included."""
    read: int
    """Rows: lines that are neither blank nor a header."""
    accepted: list[tuple[int, T]]
    rejected: list[tuple[int, Rejected]]


def digest(text: str) -> bytes:
    """16 bytes that stand for an id or a text."""
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def entry(key: str, title: str, text: str, limits: Limits, values: tuple[Any, ...] = ()) -> Entry:
    """Cut title and text to their limits. RowError where neither has anything but blanks."""
    cut = len(title) > limits.title or len(text) > limits.text
    kept = Entry(key, title[: limits.title], text[: limits.text], cut, values)
    if not kept.title.strip() and not kept.text.strip():
        raise RowError(Reason.EMPTY_TEXT)
    return kept


def document(row: Mapping[str, Any], rules: Rules) -> Entry:
    """A document under the names of `rules.columns`, with its declared fields.

    Title and text may be missing or null, but a document of which both are blank is rejected as empty.
    """
    names = rules.columns
    values = tuple(_value(row.get(name), kind) for name, kind in rules.fields.items())
    title, text = _string(row, names.title), _string(row, names.text)
    return entry(_key(row, names.id, rules.limits), title, text, rules.limits, values)


def query(row: Mapping[str, Any], rules: Rules) -> Entry:
    """A query: an id and a text. A blank text is rejected as empty."""
    return entry(_key(row, rules.columns.id, rules.limits), "", _string(row, rules.columns.text), rules.limits)


def judgement(query_id: str, doc_id: str, grade: str) -> Judgement:
    """A judgement whose grade is a whole number of 32 bits."""
    grade = grade.strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", grade) or abs(int(grade)) >= 2**31:
        raise RowError(Reason.WRONG_TYPE)
    return Judgement(query_id, doc_id, int(grade))


def judgement_row(row: Mapping[str, Any]) -> Judgement:
    """A judgement under BEIR's names: ids as text or whole numbers, a grade that is a whole number."""
    query_id, doc_id = (_id(row, name) for name in HEADER[:2])
    grade = row.get(HEADER[2])
    if isinstance(grade, float) and grade.is_integer():
        grade = int(grade)
    if isinstance(grade, bool) or not isinstance(grade, int | str):
        raise RowError(Reason.WRONG_TYPE)
    return judgement(query_id, doc_id, str(grade))


def count(read: int, accepted: int, rejected: Mapping[str, int]) -> dict[str, Any]:
    """Counts for record.json, commonest reason first; accepted + rejected = read."""
    if accepted + sum(rejected.values()) != read:
        raise RuntimeError(f"{accepted} accepted and {dict(rejected)} rejected, but {read} read")
    reasons = sorted(rejected.items(), key=lambda pair: (-pair[1], pair[0]))
    return {"read": read, "accepted": accepted, "rejected": {str(reason): number for reason, number in reasons}}


def split(line: bytes, columns: int) -> list[str]:
    """Values of a line, split by tabs; RowError where there are not so many."""
    found = decode(line).rstrip("\r\n").split("\t")
    if len(found) != columns:
        raise RowError(Reason.WRONG_COLUMNS)
    return found


def decode(line: bytes) -> str:
    """A line's text; RowError where it is none."""
    if len(line) > LONGEST_LINE:
        raise RowError(Reason.LINE_TOO_LONG)
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RowError(Reason.INVALID_UTF8) from None


def json_row(line: bytes) -> dict[str, Any]:
    """A line's JSON object; RowError where it is none."""
    text = decode(line)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise RowError(Reason.NOT_JSON) from None
    if not isinstance(value, dict):
        raise RowError(Reason.NOT_AN_OBJECT)
    return value


def _string(row: Mapping[str, Any], name: str) -> str:
    """A value of the row, "" where it is missing or null."""
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RowError(Reason.WRONG_TYPE)
    if not encodes(value):
        raise RowError(Reason.INVALID_UTF8)
    return value


def _id(row: Mapping[str, Any], name: str) -> str:
    """An id, which may be a whole number too."""
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
    """A declared field's value, None where it is missing; RowError where it is of another type."""
    if value is None:
        return None
    if not _is_a(value, kind):
        raise RowError(Reason.WRONG_FIELD)
    return float(value) if kind == "float" else value


def _is_a(value: Any, kind: FieldType) -> bool:
    """A whole number is a float too; a truth value is no number; what parquet or JSON could not hold is nothing."""
    if kind == "string":
        return isinstance(value, str) and encodes(value)
    if kind == "bool" or isinstance(value, bool):
        return kind == "bool" and isinstance(value, bool)
    if kind == "int":
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def encodes(text: str) -> bool:
    """Whether a text can be written as UTF-8: JSON and the shell may give halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
