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
from rayhier.storage.artifact import Place
from rayhier.storage.attempt import Attempt, Output

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


@pytest.fixture
def make_corpus(tmp_path):
    """`make_corpus(parents=None)`: the corpus of six documents, or of passages of these parents, as an artifact."""

    def make(parents=None):
        schema = schemas.documents({}, passages=parents is not None)
        with Attempt.start(Place(tmp_path / "corpus" / "made")) as attempt:
            for part in range(2):
                own = range(part * 3, part * 3 + 3)
                columns = [[f"d{row}" for row in own], [""] * 3, ["text"] * 3]
                columns += [] if parents is None else [[parents[row] for row in own]]
                name = f"documents/part-{part:05d}.parquet"
                parquet.write(attempt.root, name, [pa.table(columns, schema=schema)], schema)
            return attempt.publish("corpus", {}, Output({"rows": 6}))

    return make


def parsed(tmp_path, corpus, *raw):
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(b"\n".join(raw))
    return read(path, corpus, LIMITS)


def table(root, name):
    return [tuple(row.values()) for row in parquet.read(root / name).to_pylist()]


def test_every_reason_is_counted_and_listed(make_corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(row_checks, "LONGEST_LINE", 100)
    bad = BAD | {line("x" * 120, "d1"): Reason.LINE_TOO_LONG}
    found = parsed(tmp_path, make_corpus(), line(" a pine? ", "d1"), b"", *bad, line("an oak", "d0"))
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


def test_a_query_of_two_whole_documents_is_one_query(make_corpus, tmp_path):
    corpus = make_corpus(parents=["a", "a", "b", "b", "b", "c"])
    found = parsed(tmp_path, corpus, line("pine", "a"), line("oak", "a"), line("pine", "c"), line("pine", "d0"))
    made = write(tmp_path / "made", "pairs.jsonl", found)
    assert (made.counts["queries"], made.counts["documents"]) == (2, 2)
    assert table(tmp_path / "made", "pairs.parquet") == [("g0", "a"), ("g1", "a"), ("g0", "c")]
    assert [one.reason for _, one in found.rejected] == [Reason.UNKNOWN_DOCUMENT], "d0 is a passage"


def test_a_file_of_another_corpus_is_refused(make_corpus, tmp_path):
    said = r"^train\.generated\.path: .*pairs\.jsonl: none of its 2 pairs .*'x1'\); allowed: .*'d0'$"
    with pytest.raises(InputError, match=said):
        parsed(tmp_path, make_corpus(), b"[]", line("pine", "x1"), line("oak", "x2"))
