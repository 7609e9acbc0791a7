"""Rows, one by one."""

import json

import pytest

from rayhier.corpus import check
from rayhier.corpus.check import Entry, Judgement, Reason, RowError
from rayhier.spec.corpus import Limits

LIMITS = Limits(title=5, text=10, id=4)


def outcome(parse, *arguments):
    try:
        return parse(*arguments)
    except RowError as error:
        return error.reason


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"_id": "1", "title": "t", "text": "x"}, Entry("1", "t", "x", cut=False)),
        ({"_id": "1", "text": "x", "metadata": {"year": 1}}, Entry("1", "", "x", cut=False)),
        ({"_id": "1", "title": None, "text": "x"}, Entry("1", "", "x", cut=False)),
        ({"_id": "1", "title": "t", "text": " "}, Entry("1", "t", " ", cut=False)),
        ({"_id": "1", "title": "t"}, Entry("1", "t", "", cut=False)),
        ({"_id": "1", "title": "123456", "text": "x"}, Entry("1", "12345", "x", cut=True)),
        ({"_id": "1", "text": "12345678901"}, Entry("1", "", "1234567890", cut=True)),
        ({"_id": "1", "text": "nul \0"}, Entry("1", "", "nul \0", cut=False)),
        ({"_id": "1", "text": " " * 10 + "x"}, Reason.EMPTY_TEXT),
        ({"_id": "1", "title": " ", "text": "\n"}, Reason.EMPTY_TEXT),
        ({"_id": "1"}, Reason.EMPTY_TEXT),
        ({"text": "x"}, Reason.MISSING_ID),
        ({"_id": None, "text": "x"}, Reason.MISSING_ID),
        ({"_id": " ", "text": "x"}, Reason.MISSING_ID),
        ({"_id": 1, "text": "x"}, Reason.WRONG_TYPE),
        ({"_id": "1", "text": ["x"]}, Reason.WRONG_TYPE),
        ({"_id": "1", "title": 2, "text": "x"}, Reason.WRONG_TYPE),
        ({"_id": "12345", "text": "x"}, Reason.ID_TOO_LONG),
        ({"_id": "1", "text": "\ud800"}, Reason.INVALID_UTF8),
        ({"_id": "\udfff", "text": "x"}, Reason.INVALID_UTF8),
        (["x"], Reason.NOT_AN_OBJECT),
        (None, Reason.NOT_AN_OBJECT),
    ],
)
def test_document(line, expected):
    assert outcome(check.document, json.dumps(line).encode(), LIMITS) == expected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"_id": "1", "text": "\xff"}', Reason.INVALID_UTF8),
        ('{"_id": "1"}'.encode("utf-16"), Reason.INVALID_UTF8),
        (b"{", Reason.NOT_JSON),
        (b'{"_id": "1"} {"_id": "2"}', Reason.NOT_JSON),
        (b"[" * 1_000_000, Reason.NOT_JSON),
        (b'{"a":' * 1_000_000, Reason.NOT_JSON),
        (b"1" * 5_000, Reason.NOT_JSON),
    ],
)
def test_a_line_that_is_no_row(line, reason):
    assert outcome(check.document, line, LIMITS) == reason


def test_a_byte_order_mark_is_no_part_of_the_row():
    assert check.document(b'\xef\xbb\xbf{"_id": "1", "text": "x"}\r\n', LIMITS).key == "1"


def test_a_line_longer_than_the_reader_allows(monkeypatch):
    monkeypatch.setattr(check, "LONGEST_LINE", 10)
    assert outcome(check.document, b'{"_id": "1", "text": "x"}', LIMITS) == Reason.LINE_TOO_LONG


def test_a_query_needs_a_text():
    assert check.query(b'{"_id": "1", "text": "x"}', LIMITS) == Entry("1", "", "x", cut=False)
    assert outcome(check.query, b'{"_id": "1", "title": "t", "text": ""}', LIMITS) == Reason.EMPTY_TEXT


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"q\td\t1\r\n", Judgement("q", "d", 1)),
        (b"q\td\t-1", Judgement("q", "d", -1)),
        (b"q\td", Reason.WRONG_COLUMNS),
        (b"q 0 d 1", Reason.WRONG_COLUMNS),
        (b"q\td\t1\t1", Reason.WRONG_COLUMNS),
        (b"q\td\t1.0", Reason.WRONG_TYPE),
        (b"q\td\t", Reason.WRONG_TYPE),
        (b"q\td\t1_0", Reason.WRONG_TYPE),
        ("q\td\t\u0661".encode(), Reason.WRONG_TYPE),
        (b"q\td\t2147483648", Reason.WRONG_TYPE),
        (b"x\td\t1", Reason.UNKNOWN_QUERY),
        (b"q\tx\t1", Reason.UNKNOWN_DOCUMENT),
        (b"q\t\xff\t1", Reason.INVALID_UTF8),
    ],
)
def test_judgement(line, expected):
    assert outcome(check.judgement, line, {"q"}, {"d"}) == expected


def test_counts_that_do_not_add_up_are_an_error():
    assert check.count(3, 1, {"b": 1, "a": 1})["rejected"] == {"a": 1, "b": 1}
    with pytest.raises(RuntimeError, match="1 accepted"):
        check.count(3, 1, {"a": 1})
