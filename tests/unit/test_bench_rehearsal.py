"""The rehearsal's files, the lines that it reads, and the section that it writes."""

from pathlib import Path

import pytest

from benchmarks.rehearsal import passages
from benchmarks.rehearsal.__main__ import ESTIMATE, TITLE, is_within, write
from benchmarks.rehearsal.job import LINE
from benchmarks.rehearsal.passages import Language, Size

SIZE = Size(600, 60, 20)


def rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_every_query_shares_words_with_its_answer_or_its_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "CHUNK", 250)
    passages.write(tmp_path / "a", SIZE)
    texts = dict(rows(tmp_path / "a" / "collection.tsv"))
    assert list(texts) == [str(number) for number in range(600)]
    assert all(passages.SHORTEST <= len(text.split()) <= passages.LONGEST for text in texts.values())
    answered = set[str]()
    for split, count in (("train", 60), ("dev.small", 20)):
        queries = dict(rows(tmp_path / "a" / f"queries.{split}.tsv"))
        judged = rows(tmp_path / "a" / f"qrels.{split}.tsv")
        assert len(queries) == len(judged) == count
        shared = [set(queries[query].split()) & set(texts[passage].split()) for query, _, passage, _ in judged]
        assert sum(map(bool, shared)) > 0.9 * count
        answered |= {passage for _, _, passage, _ in judged}
    assert len(answered) == 80, "each query has a passage of its own"


def test_files_are_the_same_each_time(tmp_path: Path) -> None:
    for name in "ab":
        passages.write(tmp_path / name, SIZE)
    both = [[path.read_bytes() for path in sorted((tmp_path / name).iterdir())] for name in "ab"]
    assert both[0] == both[1]


def test_words_differ() -> None:
    words = passages.vocabulary()
    assert len(set(words)) == len(words) == passages.WORDS
    assert Language(1_000).text([0, 1]) == f"{words[0]} {words[1]}"


def test_lines_of_plan_and_run() -> None:
    line = (
        "  train seed 0     model/dcb80851cb8f         about   9 MB  1 x 1 CPU           to do      estimated   1.5 h"
    )
    assert ESTIMATE.findall(line) == [("train", "1.5", "h")]
    assert LINE.match("index seed 0: /work/index/7f77").groups() == ("index", None)
    assert LINE.match("embed: built /work/vectors/ca6c (19.8 s)").groups() == ("embed", "19.8")
    assert LINE.match("  embed: 5 of 20 texts") is None
    assert [is_within(took, 10) for took in (4, 5, 20, 21)] == [False, True, True, False]


def test_the_section_is_replaced(tmp_path: Path) -> None:
    (page := tmp_path / "a.md").write_text("# A\n\n## B\n\nb\n")
    for text in ("once", "twice"):
        write(page, [TITLE, "", text])
    assert page.read_text() == f"# A\n\n## B\n\nb\n\n{TITLE}\n\ntwice\n"
