"""Parts of a corpus file, made one by one and settled together."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.corpus import lines, parts, sources
from rayhier.corpus.passages import DocumentLayout
from rayhier.spec.corpus import Beir, Limits

KEYS = ["a", "b", "a", "c", "b", "d", "c", "a", "e", "e"]
FIRST = {"a": 0, "b": 1, "c": 3, "d": 5, "e": 8}


@pytest.fixture
def source(tmp_path):
    """Ten lines of ten ids, five of them distinct; the text is the number of the line."""
    (tmp_path / "qrels").mkdir()
    for name in ("queries.jsonl", "qrels/test.tsv"):
        (tmp_path / name).write_text("")
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"_id": key, "text": f"{n}"}) + "\n" for n, key in enumerate(KEYS)))
    return path


def settle(source, root, **sections):
    return settled_of(Beir(type="beir", path=str(source.parent), **sections), root)


def settled_of(spec, root):
    layout, reader = DocumentLayout.of(spec), sources.ranged(spec)
    spans = reader.ranges()
    for span in spans:
        if parts.finished(span, root) is None:
            parts.make(span, reader.documents(span), root, layout)
    return parts.settle(root, [parts.finished(span, root) for span in spans], layout)


@pytest.mark.parametrize("step", [20, 60, 10_000])
def test_the_first_of_each_id_stays_wherever_the_ranges_end(source, tmp_path, monkeypatch, step):
    monkeypatch.setattr(lines, "SMALLEST_RANGE", step)
    settled = settle(source, tmp_path)
    tables = [pq.read_table(tmp_path / file.name) for file in settled.documents]
    kept = {row["doc_id"]: int(row["text"]) for table in tables for row in table.to_pylist()}
    assert kept == FIRST
    assert sum(len(table) for table in tables) == len(FIRST)
    rejected = pa.concat_tables(settled.rejected).to_pydict()
    assert rejected["row"] == [n + 1 for n in range(len(KEYS)) if n not in FIRST.values()]
    assert set(rejected["reason"]) == {"duplicate id"}
    assert rejected["value"] == [key for n, key in enumerate(KEYS) if n not in FIRST.values()]
    assert settled.counts() == {"read": 10, "accepted": 5, "rejected": {"duplicate id": 5}, "cut": 0}


def test_settling_again_after_a_crash_gives_the_same_bytes(source, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "SMALLEST_RANGE", 60)
    once = settle(source, tmp_path)
    spans = sources.ranged(Beir(type="beir", path=str(source.parent))).ranges()
    assert 1 < len(once.documents) < len(spans)
    sizes = {path: path.stat().st_size for path in (tmp_path / "documents").iterdir()}
    gone = [span for span in spans if parts.finished(span, tmp_path) is None]
    assert gone, "a rewritten part is not the one in the ledger"
    again = settle(source, tmp_path)
    assert again.documents == once.documents
    assert again.counts() == once.counts()
    assert again.rejected == once.rejected
    assert {path: path.stat().st_size for path in (tmp_path / "documents").iterdir()} == sizes


def test_a_cut_text_counts_only_where_it_stays(source, tmp_path, monkeypatch):
    monkeypatch.setattr("rayhier.spec.corpus.LIMITS", Limits(text=1))
    monkeypatch.setattr(lines, "SMALLEST_RANGE", 30)
    documents = [{"_id": "a", "text": "x"}, {"_id": "b", "text": "yy"}, {"_id": "a", "text": "zz"}]
    source.write_text("".join(json.dumps(line) + "\n" for line in documents))
    counts = settle(source, tmp_path).counts()
    assert counts == {"read": 3, "accepted": 2, "rejected": {"duplicate id": 1}, "cut": 1}
