"""Files of rows, whole and in ranges."""

import io
import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayhier.corpus import beir, check
from rayhier.corpus.check import Judgement, Reason
from rayhier.spec.corpus import Limits

DOCUMENT = partial(check.document, limits=Limits())
VALID = st.builds(
    lambda key, text: json.dumps({"_id": key, "text": text}).encode(), st.sampled_from("abc"), st.text(max_size=5)
)


def test_six_lines():
    raw = [
        b'{"_id": "a", "text": "x"}\n',
        b" \n",
        b'{"_id": "a", "text": "y"}\n',
        b"{\n",
        b'{"_id": "", "text": "x"}\n',
        b'{"_id": "b", "text": "z"}',
    ]
    parsed = beir.entries(raw, DOCUMENT)
    assert (parsed.lines, parsed.read) == (6, 5)
    assert [(line, one.key, one.text) for line, one in parsed.accepted] == [(1, "a", "x"), (6, "b", "z")]
    assert parsed.rejected == [(3, Reason.DUPLICATE_ID), (4, Reason.NOT_JSON), (5, Reason.MISSING_ID)]


def test_judgements_of_six_lines():
    raw = [b"query-id\tcorpus-id\tscore\n", b"q\td\t1\n", b"\n", b"q\td\t2\n", b"q\te\t0\n", b"x\td\t1\n"]
    parsed = beir.judgements(raw, {"q"}, {"d", "e"})
    assert parsed.read == 4
    assert parsed.accepted == [(2, Judgement("q", "d", 1)), (5, Judgement("q", "e", 0))]
    assert parsed.rejected == [(4, Reason.DUPLICATE_JUDGEMENT), (6, Reason.UNKNOWN_QUERY)]


def test_the_header_is_optional_and_stands_first():
    assert beir.judgements([b"q\td\t1\n"], {"q"}, {"d"}).read == 1
    second = beir.judgements([b"q\td\t1\n", b"query-id\tcorpus-id\tscore\n"], {"q"}, {"d"})
    assert second.rejected == [(2, Reason.WRONG_TYPE)]


@given(st.lists(st.binary(max_size=30) | VALID))
def test_accepted_and_rejected_are_all_that_was_read(raw):
    raw = [line + b"\n" for line in raw]
    parsed = beir.entries(raw, DOCUMENT)
    numbers = [line for line, _ in parsed.accepted] + [line for line, _ in parsed.rejected]
    assert sorted(numbers) == [n for n, line in enumerate(raw, 1) if not line.isspace()]
    assert parsed.read == len(numbers)
    keys = [one.key for _, one in parsed.accepted]
    assert len(set(keys)) == len(keys)


@given(st.lists(st.binary(max_size=30)))
def test_every_row_of_any_judgements_is_read(raw):
    parsed = beir.judgements(raw, {"q"}, {"d"})
    assert parsed.read == len(parsed.accepted) + len(parsed.rejected)


@pytest.mark.parametrize("content", [b"", b"\n", b"one", b"a\nbb\n\nccc\n", b"a\r\nb\xffb\n" + b"c" * 50 + b"\nd"])
@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
def test_ranges_hold_every_line_once(tmp_path, monkeypatch, content, step):
    monkeypatch.setattr(beir, "SMALLEST_RANGE", step)
    monkeypatch.setattr(beir, "SKIP", 2)
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(content)
    spans = beir.ranges(len(content))
    assert [span.part for span in spans] == list(range(len(spans)))
    found = [line for span in spans for line in beir.lines(path, span.begin, span.end)]
    assert found == list(io.BytesIO(content))


def test_ranges_are_at_most_1024():
    assert len(beir.ranges(10 << 20)) == 10
    assert len(beir.ranges((5 << 30) + 1)) == 1024
    assert beir.ranges((5 << 30) + 1)[-1].end == (5 << 30) + 1


def test_an_endless_line_comes_cut_and_the_next_one_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(beir, "LONGEST_LINE", 8)
    monkeypatch.setattr(beir, "SKIP", 3)
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"a\n" + b"x" * 30 + b"\nb\n12345678\n")
    assert list(beir.lines(path, 0, 44)) == [b"a\n", b"x" * 9, b"b\n", b"12345678\n"]
    assert [list(beir.lines(path, n, n + 11)) for n in (0, 11, 22, 33)] == [
        [b"a\n", b"x" * 9],
        [],
        [],
        [b"b\n", b"12345678\n"],
    ]
