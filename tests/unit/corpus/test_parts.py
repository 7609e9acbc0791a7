"""Parts of a corpus file, made one by one and settled together."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.corpus import beir, parts
from rayhier.spec.corpus import Limits

LIMITS = Limits()
KEYS = ["a", "b", "a", "c", "b", "d", "c", "a", "e", "e"]
FIRST = {"a": 0, "b": 1, "c": 3, "d": 5, "e": 8}


@pytest.fixture
def source(tmp_path):
    """Ten lines of ten ids, five of them distinct; the text is the number of the line."""
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"_id": key, "text": f"{n}"}) + "\n" for n, key in enumerate(KEYS)))
    return path


def settle(source, root, limits=LIMITS):
    spans = beir.ranges(source.stat().st_size)
    for span in spans:
        if parts.finished(span, root) is None:
            parts.make(span, source, root, limits)
    return parts.settle(root, [parts.finished(span, root) for span in spans], "corpus.jsonl")


@pytest.mark.parametrize("step", [1, 60, 100, 10_000])
def test_the_first_of_each_id_stays_wherever_the_ranges_end(source, tmp_path, monkeypatch, step):
    monkeypatch.setattr(beir, "SMALLEST_RANGE", step)
    settled = settle(source, tmp_path)
    tables = [pq.read_table(tmp_path / file.name) for file in settled.documents]
    kept = {row["doc_id"]: int(row["text"]) for table in tables for row in table.to_pylist()}
    assert kept == FIRST
    assert sum(len(table) for table in tables) == len(FIRST)
    rejected = pa.concat_tables(settled.rejected).to_pydict()
    assert rejected["row"] == [n + 1 for n in range(len(KEYS)) if n not in FIRST.values()]
    assert set(rejected["reason"]) == {"duplicate id"}
    assert settled.counts() == {"read": 10, "accepted": 5, "rejected": {"duplicate id": 5}, "cut": 0}


def test_settling_again_after_a_crash_gives_the_same_bytes(source, tmp_path, monkeypatch):
    monkeypatch.setattr(beir, "SMALLEST_RANGE", 60)
    once = settle(source, tmp_path)
    assert 1 < len(once.documents) < len(beir.ranges(source.stat().st_size))
    sizes = {path: path.stat().st_size for path in (tmp_path / "documents").iterdir()}
    spans = beir.ranges(source.stat().st_size)
    assert any(parts.finished(span, tmp_path) is None for span in spans), (
        "a rewritten part is not the one in the ledger"
    )
    again = settle(source, tmp_path)
    assert again.documents == once.documents
    assert again.counts() == once.counts()
    assert {path: path.stat().st_size for path in (tmp_path / "documents").iterdir()} == sizes


def test_a_cut_text_counts_only_where_it_stays(source, tmp_path, monkeypatch):
    monkeypatch.setattr(beir, "SMALLEST_RANGE", 30)
    lines = [{"_id": "a", "text": "x"}, {"_id": "b", "text": "yy"}, {"_id": "a", "text": "zz"}]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    counts = settle(source, tmp_path, Limits(text=1)).counts()
    assert counts == {"read": 3, "accepted": 2, "rejected": {"duplicate id": 1}, "cut": 1}


def test_a_range_without_a_document_has_no_part_file(source, tmp_path):
    source.write_text("{\n\n")
    settled = settle(source, tmp_path)
    assert settled.documents == []
    assert not (tmp_path / "documents").exists()
    assert settled.counts()["rejected"] == {"not JSON": 1}
