"""Rows, one by one."""

import json

import pytest

from rayhier.corpus import lines, row_checks
from rayhier.corpus.row_checks import Entry, Judgement, Reason, RowError, RowSchema
from rayhier.spec.corpus import ColumnNames, Limits

SCHEMA = RowSchema(Limits(title=5, text=10, id=4), ColumnNames(id="_id"), {})


def outcome(parse, *arguments):
    try:
        return parse(*arguments)
    except RowError as error:
        return error.reason


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"_id": "1", "title": "t", "text": "x", "metadata": {"year": 1}}, Entry("1", "t", "x", cut=False)),
        ({"_id": 1, "title": None, "text": "nul \0"}, Entry("1", "", "nul \0", cut=False)),
        ({"_id": "1234", "title": "12345", "text": "1234567890"}, Entry("1234", "12345", "1234567890", cut=False)),
        ({"_id": "1", "title": "123456", "text": "x"}, Entry("1", "12345", "x", cut=True)),
        ({"_id": "1", "text": "12345678901"}, Entry("1", "", "1234567890", cut=True)),
        ({"_id": "1", "text": " " * 10 + "x"}, Reason.EMPTY_TEXT),
        ({"text": "x"}, Reason.MISSING_ID),
        ({"_id": " ", "text": "x"}, Reason.MISSING_ID),
        ({"_id": True, "text": "x"}, Reason.WRONG_TYPE),
        ({"_id": "1", "title": 2, "text": "x"}, Reason.WRONG_TYPE),
        ({"_id": 12345, "text": "x"}, Reason.ID_TOO_LONG),
        ({"_id": "1", "text": "\ud800"}, Reason.INVALID_UTF8),
    ],
)
def test_document(line, expected):
    assert outcome(SCHEMA.document, row_checks.json_row(json.dumps(line).encode())) == expected


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int", 2020, 2020),
        ("int", None, None),
        ("int", 2**63, Reason.WRONG_FIELD),
        ("int", 2020.0, Reason.WRONG_FIELD),
        ("int", True, Reason.WRONG_FIELD),
        ("float", 2, 2.0),
        ("float", float("nan"), Reason.WRONG_FIELD),
        ("float", 10**400, Reason.WRONG_FIELD),
        ("string", "de", "de"),
        ("string", 1, Reason.WRONG_FIELD),
        ("string", "\ud800", Reason.WRONG_FIELD),
        ("bool", False, False),
        ("bool", 0, Reason.WRONG_FIELD),
    ],
)
def test_a_declared_field(kind, value, expected):
    schema = RowSchema(Limits(), ColumnNames(), {"field": kind})
    found = outcome(schema.document, {"id": "1", "text": "x", "field": value})
    assert found == (expected if isinstance(expected, Reason) else Entry("1", "", "x", cut=False, values=(expected,)))
    if not isinstance(found, Reason):
        assert type(found.values[0]) is type(expected)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"_id": "1", "text": "\xff"}', Reason.INVALID_UTF8),
        ('{"_id": "1"}'.encode("utf-16"), Reason.INVALID_UTF8),
        (b"{", Reason.NOT_JSON),
        (b'{"a":' * 1_000_000, Reason.NOT_JSON),
        (b"1" * 5_000, Reason.NOT_JSON),
        (b"null", Reason.NOT_AN_OBJECT),
    ],
)
def test_a_line_that_is_no_row(line, reason):
    assert outcome(row_checks.json_row, line) == reason


def test_a_line_that_is_a_row(monkeypatch):
    assert row_checks.json_row(b'\xef\xbb\xbf{"_id": "1"}\r\n') == {"_id": "1"}, "without its byte order mark"
    monkeypatch.setattr(row_checks, "LONGEST_LINE", 10)
    assert outcome(row_checks.json_row, b'{"_id": "1", "text": "x"}') == Reason.LINE_TOO_LONG


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"q\td\t1\r\n", Judgement("q", "d", 1)),
        (b"q\td\t-1", Judgement("q", "d", -1)),
        (b"q\td", Reason.WRONG_COLUMNS),
        (b"q\td\t1.0", Reason.WRONG_TYPE),
        ("q\td\t\u0661".encode(), Reason.WRONG_TYPE),
        (b"q\td\t2147483648", Reason.WRONG_TYPE),
        (b"q\t\xff\t1", Reason.INVALID_UTF8),
    ],
)
def test_judgement(line, expected):
    assert outcome(lines.JUDGEMENTS.parse, line) == expected


@pytest.mark.parametrize("grade", [1, 1.0, "1", 0.5, None, True])
def test_judgement_of_a_typed_row(grade):
    found = outcome(row_checks.judgement_row, dict(zip(row_checks.HEADER, (1, "d", grade), strict=True)))
    assert found == (Reason.WRONG_TYPE if grade in (0.5, None) or grade is True else Judgement("1", "d", 1))
    row = dict(zip(row_checks.HEADER, ("q", 1.0, 1), strict=True))
    assert outcome(row_checks.judgement_row, row) == Reason.WRONG_TYPE


BEGINNINGS = {
    "bytes that are no UTF-8": (b"a\xff\xe9b", r"a\xff\xe9b"),
    "the end of a line": ("für 東京\r\n".encode(), "für 東京"),
    "what a terminal would act on": ("a\x1b[2J\tb\u202ec\x00", r"a\x1b[2J\tb\u202ec\x00"),
    "an object": ({"id": 1, "text": "x\ny"}, r"{'id': 1, 'text': 'x\ny'}"),
    "bytes cut inside a character": (b"x" + "東京".encode() * 80, "x" + "東京" * 39 + "東…"),
    "one that escapes lengthen": (b"\xff" * 1000, r"\xff" * 20 + "…"),
}


@pytest.mark.parametrize(("value", "expected"), BEGINNINGS.values(), ids=BEGINNINGS)
def test_how_a_rejected_row_begins(value, expected):
    shown = row_checks.beginning(value)
    assert shown == expected
    assert shown.isprintable()
    assert len(shown.encode()) <= 4 * 81
