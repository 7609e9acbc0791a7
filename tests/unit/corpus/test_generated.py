"""Which generated pairs are accepted, and why the others are not."""

import json

import pyarrow as pa
import pytest

from rayhier.corpus import row_checks
from rayhier.corpus.generated import read, write
from rayhier.corpus.row_checks import Reason
from rayhier.spec import InputError
from rayhier.spec.corpus import Limits
from rayhier.storage import parquet, schemas

from ...toys import artifact

LIMITS = Limits(text=20, id=8)


def line(query, doc_id):
    return json.dumps({"query": query, "doc_id": doc_id}).encode()


BAD = {
    b"{query: pine}": Reason.NOT_JSON,
    b"[1]": Reason.NOT_AN_OBJECT,
    b'{"query": "pine \xff", "doc_id": "d1"}': Reason.INVALID_UTF8,
    b'{"doc_id": "d1"}': Reason.EMPTY_TEXT,
    line(" \n", "d1"): Reason.EMPTY_TEXT,
    line("pine " * 5, "d1"): Reason.TEXT_TOO_LONG,
    line(["pine"], "d1"): Reason.WRONG_TYPE,
    line("pine", " "): Reason.MISSING_ID,
    b'{"query": "pine"}': Reason.MISSING_ID,
    line("pine", "d12345678"): Reason.ID_TOO_LONG,
    line("pine", "d9"): Reason.UNKNOWN_DOCUMENT,
    line("a pine?", "d1"): Reason.DUPLICATE_PAIR,
}


def corpus_of(tmp_path, parents=None):
    """The corpus of six documents, or of passages of these parents, as an artifact of two parts."""
    columns = [[f"d{row}" for row in range(6)], [""] * 6, ["text"] * 6, *([] if parents is None else [list(parents)])]
    table = pa.table(columns, schema=schemas.documents({}, passages=parents is not None))
    return artifact(tmp_path, "corpus", {"documents/0.parquet": table[:3], "documents/1.parquet": table[3:]}, rows=6)


def parsed(tmp_path, corpus, *raw):
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(b"\n".join(raw))
    return read(path, corpus, LIMITS)


def table(root, name):
    return [tuple(row.values()) for row in parquet.read(root / name).to_pylist()]


def test_every_reason_is_counted_and_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(row_checks, "LONGEST_LINE", 100)
    bad = BAD | {line("x" * 120, "d1"): Reason.LINE_TOO_LONG}
    found = parsed(tmp_path, corpus_of(tmp_path), line(" a pine? ", "d1"), b"", *bad, line("an oak", "d0"))
    made = write(tmp_path / "made", "pairs.jsonl", found)
    counts = made.counts["pairs"]
    assert (counts["read"], counts["accepted"]) == (len(bad) + 2, 2)
    assert sum(counts["rejected"].values()) == len(bad)
    rejected = table(tmp_path / "made", "rejected.parquet")
    assert [row[:3] for row in rejected] == [
        ("pairs.jsonl", number, str(reason)) for number, reason in enumerate(bad.values(), 3)
    ]
    assert table(tmp_path / "made", "queries.parquet") == [("g0", "a pine?"), ("g1", "an oak")]
    assert table(tmp_path / "made", "pairs.parquet") == [("g0", "d1"), ("g1", "d0")]
    assert sorted(file.name for file in made.files) == ["pairs.parquet", "queries.parquet", "rejected.parquet"]


def test_a_query_of_two_whole_documents_is_one_query(tmp_path):
    corpus = corpus_of(tmp_path, "aabbbc")
    found = parsed(tmp_path, corpus, line("pine", "a"), line("oak", "a"), line("pine", "c"), line("pine", "d0"))
    made = write(tmp_path / "made", "pairs.jsonl", found)
    assert (made.counts["queries"], made.counts["documents"]) == (2, 2)
    assert table(tmp_path / "made", "pairs.parquet") == [("g0", "a"), ("g1", "a"), ("g0", "c")]
    assert [one.reason for _, one in found.rejected] == [Reason.UNKNOWN_DOCUMENT], "d0 is a passage"


def test_a_file_of_another_corpus_is_refused(tmp_path):
    said = r"^train\.generated: .*pairs\.jsonl: none of 2 pairs .*'x1'\); allowed: .*'d0'$"
    with pytest.raises(InputError, match=said):
        parsed(tmp_path, corpus_of(tmp_path), b"[]", line("pine", "x1"), line("oak", "x2"))
