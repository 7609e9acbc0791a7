"""Files of lines, whole and in ranges."""

import io

import pytest

from rayhier.corpus import lines
from rayhier.corpus.row_checks import Judgement, Reason, Rejection
from rayhier.storage.listing import NamedFile


def judgements(tmp_path, raw):
    path = tmp_path / "test.tsv"
    path.write_bytes(b"".join(raw))
    return list(lines.whole(NamedFile("test.tsv", path), lines.JUDGEMENTS).rows)


def test_the_header_is_optional_and_stands_first(tmp_path):
    assert judgements(tmp_path, [b"q\td\t1\n"]) == [Judgement("q", "d", 1)]
    header = b"query-id\tcorpus-id\tscore\r\n"
    assert judgements(tmp_path, [header, b" \n", b"q\td\t2"]) == [None, None, Judgement("q", "d", 2)]
    assert judgements(tmp_path, [b"q\td\t1\n", header]) == [
        Judgement("q", "d", 1),
        Rejection(Reason.WRONG_TYPE, r"query-id\tcorpus-id\tscore"),
    ]


@pytest.mark.parametrize("content", [b"", b"\n", b"one", b"a\nbb\n\nccc\n", b"a\r\nb\xffb\n" + b"c" * 50 + b"\nd"])
@pytest.mark.parametrize("step", [1, 3, 100])
def test_ranges_hold_every_line_once(tmp_path, monkeypatch, content, step):
    monkeypatch.setattr(lines, "SMALLEST_RANGE", step)
    monkeypatch.setattr(lines, "SKIP", 2)
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(content)
    found = [line for begin, end in lines.pieces(len(content)) for line in lines.lines(path, begin, end)]
    assert found == list(io.BytesIO(content))


def test_an_endless_line_comes_cut_and_the_next_one_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 8)
    monkeypatch.setattr(lines, "SKIP", 3)
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"a\n" + b"x" * 30 + b"\nb\n12345678\n")
    assert list(lines.lines(path, 0, 44)) == [b"a\n", b"x" * 9, b"b\n", b"12345678\n"]
    assert [list(lines.lines(path, n, n + 11)) for n in (0, 11, 22, 33)] == [
        [b"a\n", b"x" * 9],
        [],
        [],
        [b"b\n", b"12345678\n"],
    ]
