"""Sources that cannot be read, in whole or in part: each says what, where, and what is allowed."""

import json
import re
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rayhier.corpus import sample
from rayhier.corpus import stage as corpus
from rayhier.spec import InputError

from . import conftest as make
from .conftest import rows


def refusal(stage, section):
    with pytest.raises(InputError) as caught:
        stage(section)
    assert len(str(caught.value)) < 600
    return str(caught.value)


def without_ids(path):
    pq.write_table(pq.read_table(path).drop_columns(["_id"]), path)


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-20])


def damage(path):
    """Its footer is whole, its pages are not."""
    data = bytearray(path.read_bytes())
    data[4 : len(data) // 3] = b"\xff" * (len(data) // 3 - 4)
    path.write_bytes(data)


NAMED = [
    ("jsonl", {"documents": "{}/no.jsonl"}, r"documents: got .*no such file or folder"),
    ("jsonl", {"documents": "{}/.."}, r"documents.*holds no \*\.jsonl"),
    ("jsonl", {"documents": "{}/*/*.json"}, "documents.*a pattern of files"),
    ("jsonl", {"documents": "{}/**/*.jsonl"}, r"queries.*asked\.jsonl is one of the documents too"),
    ("jsonl", {"judgements": {"test": "absent"}}, "judgements.test: got 'absent', no such file"),
    ("jsonl", {"columns": {"id": "name"}}, "documents.*key 'name' is missing in the first 4 rows"),
    ("jsonl", {"fields": {"yaer": "int"}}, "fields.yaer: no document has it"),
    ("parquet", {"documents": "{}/test.tsv"}, r"test\.tsv: cannot be read as parquet"),
    ("parquet", {"columns": {"text": "body"}}, r"columns\.text.*a\.parquet has no column 'body'; allowed: .*id"),
    ("msmarco", {"path": "{}/absent"}, "path: got.*no such folder"),
    ("ir_datasets", {"dataset": "beir/nowhere"}, "dataset: got 'beir/nowhere'"),
    ("huggingface", {"path": "{}-absent"}, "path: got.*no such folder"),
]


@pytest.mark.parametrize(("source", "change", "said"), NAMED)
def test_what_a_spec_names_is_refused(source, change, said, stage, folder):
    section = getattr(make, source)(folder)
    change = json.loads(json.dumps(change).replace("{}/", f"{folder}/").replace("{}-", f"{folder}-"))
    message = refusal(stage, section | change)
    assert re.search(said, message)
    assert "; allowed: " in message


def test_a_split_without_judgements_is_refused(stage, folder):
    section = make.ir_datasets(folder)
    message = refusal(stage, section | {"splits": {"test": section["dataset"]}})
    assert message.startswith("corpus.splits.test")
    assert "lacks queries or judgements" in message


DAMAGED = [
    (
        "jsonl",
        "documents/b.jsonl",
        '[\n{"key": 1, "text": "oak"},\n',
        r"line 1: got '\['.*of an array; allowed: UTF-8, one",
    ),
    (
        "jsonl",
        "asked.jsonl",
        "id,text\n1,what\n",
        r"queries: .*asked\.jsonl: line 1: got 'id,text'; allowed: UTF-8, one",
    ),
    (
        "jsonl",
        "documents/a.jsonl",
        f'{{"key": 1, "body": "{"oak " * 8}"}}\n',
        "key 'text' is missing .* have key, body",
    ),
    ("jsonl", "train.tsv", "query-id\tcorpus-id\tscore\n", r"judgements\.train: .*train\.tsv has no judgement"),
    ("jsonl", "test.tsv", "\nq0 d7\nq1 d8\n", r"line 2: got 'q0 d7'.*BEIR's three columns, or TREC's four"),
    ("parquet", "documents/b.parquet", damage, "cannot be read as parquet"),
    ("msmarco", "queries.dev.small.tsv", Path.unlink, "is missing"),
    ("msmarco", "queries.train.tsv", "1 which\n2 what\n", "line 1: got '1 which'.*2 columns split by tabs: id, text"),
    ("msmarco", "qrels.train.tsv", "1\t2\n", r"line 1: got '1\\t2'.*TREC's four"),
    ("huggingface", "texts/corpus.parquet", cut_off, "configuration corpus, cannot be read"),
    ("huggingface", "texts/corpus.parquet", without_ids, "no column '_id' in corpus; allowed: title, text, year"),
]


@pytest.mark.parametrize(("source", "name", "change", "said"), DAMAGED)
def test_files_that_cannot_be_read_are_refused(source, name, change, said, stage, folder):
    section, path = getattr(make, source)(folder), folder / name
    if isinstance(change, str):
        path.write_text(change)
    else:
        change(path)
    message = refusal(stage, section)
    assert re.search(said, message)
    assert source == "huggingface" or path.name in message


MISSING = {"ir_datasets": (make.ir_datasets, "ir-datasets"), "datasets": (make.huggingface, "huggingface")}


@pytest.mark.parametrize("package", MISSING)
def test_a_missing_package_is_named_with_its_extra(package, stage, folder, monkeypatch):
    source, extra = MISSING[package]
    section = source(folder)
    monkeypatch.setitem(sys.modules, package, None)
    assert f"pip install 'rayhier[{extra}]'" in refusal(stage, section)


def test_rows_of_the_wrong_shape_are_rejected_where_others_are_right(stage, test_stage, folder, monkeypatch):
    section = make.msmarco(folder)
    with (folder / "collection.tsv").open("a") as opened:
        opened.write("\n10\ttitle\ttext\nalone\n\tno id\nd1\tagain\n11\t\n")
    with (folder / "qrels.dev.small.tsv").open("a") as opened:
        opened.write("q0 0 d3 1\nq0\td3\n")
    said = []
    monkeypatch.setattr(corpus, "say", said.append)
    made = stage(section)
    assert said[-4:] == [
        f"  5 rows are rejected, with their reasons: {made.path('rejected.parquet')}",
        r"    collection.tsv, row 11: wrong number of columns: 10\ttitle\ttext",
        "    collection.tsv, row 12: wrong number of columns: alone",
        r"    collection.tsv, row 13: missing id: \tno id",
    ]
    assert sample.rejected(make.job(section).corpus) == [
        (
            "collection.tsv: 5 of the first 14 rows would be rejected, "
            r"line 11 for instance: wrong number of columns: 10\ttitle\ttext"
        )
    ]
    test = test_stage(made, section)
    assert rows(made, "rejected.parquet") + rows(test, "rejected.parquet") == [
        ("collection.tsv", 11, "wrong number of columns", r"10\ttitle\ttext"),
        ("collection.tsv", 12, "wrong number of columns", "alone"),
        ("collection.tsv", 13, "missing id", r"\tno id"),
        ("collection.tsv", 14, "duplicate id", "d1"),
        ("collection.tsv", 15, "empty text", r"11\t"),
        ("qrels.dev.small.tsv", 5, "wrong number of columns", r"q0\td3"),
    ]
    assert made.record.counts["documents"]["read"] == 14
    assert test.record.counts["splits"]["test"]["judgements"] == 4
