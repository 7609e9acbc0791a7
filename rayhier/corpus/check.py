"""What is accepted of a source, row by row, and why the rest is rejected."""

import hashlib
import json
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from rayhier.spec.corpus import Limits

DIGEST_BYTES = 16
LONGEST_LINE = 64 << 20
"""Bytes. The readers of lines stop here, so that one endless line cannot fill the memory."""
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
    rejected: list[tuple[int, Reason]]


def digest(text: str) -> bytes:
    """16 bytes that stand for an id or a text."""
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def entry(key: str, title: str, text: str, limits: Limits) -> Entry:
    """Cut title and text to their limits. RowError where neither has anything but blanks."""
    kept = Entry(key, title[: limits.title], text[: limits.text], len(title) > limits.title or len(text) > limits.text)
    if not kept.title.strip() and not kept.text.strip():
        raise RowError(Reason.EMPTY_TEXT)
    return kept


def document(line: bytes, limits: Limits) -> Entry:
    """A line of corpus.jsonl: `{"_id": …, "title": …, "text": …}`.

    Title and text may be missing or null, but a document of which both are blank is rejected as empty.
    """
    row = _row(line)
    return entry(_key(row, limits), _string(row, "title"), _string(row, "text"), limits)


def query(line: bytes, limits: Limits) -> Entry:
    """A line of queries.jsonl: `{"_id": …, "text": …}`. A blank text is rejected as empty."""
    row = _row(line)
    return entry(_key(row, limits), "", _string(row, "text"), limits)


def judgement(line: bytes, queries: Container[str], documents: Container[str]) -> Judgement:
    """A line of a qrels file: query id, document id and a whole number, split by tabs; ids must be known."""
    columns = _columns(line)
    if len(columns) != len(HEADER):
        raise RowError(Reason.WRONG_COLUMNS)
    query_id, doc_id, grade = columns[0], columns[1], columns[2].strip()
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", grade) or abs(int(grade)) >= 2**31:
        raise RowError(Reason.WRONG_TYPE)
    if query_id not in queries:
        raise RowError(Reason.UNKNOWN_QUERY)
    if doc_id not in documents:
        raise RowError(Reason.UNKNOWN_DOCUMENT)
    return Judgement(query_id, doc_id, int(grade))


def is_header(line: bytes) -> bool:
    """Whether the line is BEIR's header of a qrels file."""
    try:
        return tuple(_columns(line)) == HEADER
    except RowError:
        return False


def count(read: int, accepted: int, rejected: Mapping[str, int]) -> dict[str, Any]:
    """Counts for record.json, commonest reason first; accepted + rejected = read."""
    if accepted + sum(rejected.values()) != read:
        raise RuntimeError(f"{accepted} accepted and {dict(rejected)} rejected, but {read} read")
    reasons = sorted(rejected.items(), key=lambda pair: (-pair[1], pair[0]))
    return {"read": read, "accepted": accepted, "rejected": {str(reason): number for reason, number in reasons}}


def _columns(line: bytes) -> list[str]:
    return _text(line).rstrip("\r\n").split("\t")


def _text(line: bytes) -> str:
    if len(line) > LONGEST_LINE:
        raise RowError(Reason.LINE_TOO_LONG)
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RowError(Reason.INVALID_UTF8) from None


def _row(line: bytes) -> dict[str, Any]:
    text = _text(line)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise RowError(Reason.NOT_JSON) from None
    if not isinstance(value, dict):
        raise RowError(Reason.NOT_AN_OBJECT)
    return value


def _string(row: dict[str, Any], name: str) -> str:
    """A field of the row, "" where it is missing or null."""
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RowError(Reason.WRONG_TYPE)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RowError(Reason.INVALID_UTF8) from None
    return value


def _key(row: dict[str, Any], limits: Limits) -> str:
    value = _string(row, "_id")
    if not value.strip():
        raise RowError(Reason.MISSING_ID)
    if len(value) > limits.id:
        raise RowError(Reason.ID_TOO_LONG)
    return value
