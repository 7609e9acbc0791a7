"""Sources that cannot be read, in whole or in part: each says what, where, and what is allowed."""

import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

from rayhier.corpus import ray as corpus
from rayhier.spec import InputError

from . import conftest as make


def refusal(stage, section):
    with pytest.raises(InputError) as caught:
        stage(section)
    assert len(str(caught.value)) < 600
    return str(caught.value)


def without(file, column):
    pq.write_table(pq.read_table(file).drop_columns([column]), file)


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-20])


def damaged(path):
    """Its footer is whole, its pages are not."""
    data = bytearray(path.read_bytes())
    data[4 : len(data) // 3] = b"\xff" * (len(data) // 3 - 4)
    path.write_bytes(data)


CASES = {
    "jsonl: no such documents": (
        make.jsonl,
        lambda folder: {"documents": str(folder / "absent.jsonl")},
        ["corpus.documents: got", "absent.jsonl', no such file or folder; allowed: a file, a folder of *.jsonl"],
    ),
    "jsonl: a folder of something else": (
        make.jsonl,
        lambda folder: {"documents": str(folder.parent)},
        ["corpus.documents", "holds no *.jsonl"],
    ),
    "jsonl: a pattern of nothing": (
        make.jsonl,
        lambda folder: {"documents": str(folder / "*" / "*.json")},
        ["corpus.documents", "a pattern of files"],
    ),
    "jsonl: queries among the documents": (
        make.jsonl,
        lambda folder: {"documents": str(folder / "**" / "*.jsonl")},
        ["corpus.queries", "asked.jsonl is one of the documents too"],
    ),
    "jsonl: no such queries": (make.jsonl, lambda folder: {"queries": "absent"}, ["corpus.queries: got 'absent'"]),
    "jsonl: no such judgements": (
        make.jsonl,
        lambda folder: {"judgements": {"test": "absent"}},
        ["corpus.judgements.test: got 'absent', no such file"],
    ),
    "jsonl: another id": (
        make.jsonl,
        lambda folder: {"columns": {"id": "name"}},
        ["corpus.documents", "key 'name' is missing in the first 4 rows, which have", "corpus.columns that name other"],
    ),
    "jsonl: a field nobody has": (
        make.jsonl,
        lambda folder: {"fields": {"yaer": "int"}},
        ["corpus.fields.yaer: no document has it"],
    ),
    "jsonl: judgements split by blanks": (
        make.jsonl,
        lambda folder: (folder / "test.tsv").write_text("\nq0 d7 2\nq1 d8 0\n") and {},
        ["test.tsv: line 2: got 'q0 d7 2'", "allowed: 3 columns split by tabs: query-id, corpus-id, score"],
    ),
    "parquet: cut off": (
        make.parquet,
        lambda folder: cut_off(folder / "documents" / "b.parquet") or {},
        ["b.parquet: cannot be read as parquet", "allowed: a whole parquet file"],
    ),
    "parquet: queries cut off": (
        make.parquet,
        lambda folder: cut_off(folder / "asked.parquet") or {},
        ["asked.parquet: cannot be read as parquet"],
    ),
    "parquet: damaged": (
        make.parquet,
        lambda folder: damaged(folder / "documents" / "b.parquet") or {},
        ["b.parquet: cannot be read as parquet"],
    ),
    "parquet: something else": (
        make.parquet,
        lambda folder: {"documents": str(folder / "test.tsv")},
        ["test.tsv: cannot be read as parquet"],
    ),
    "parquet: no such column": (
        make.parquet,
        lambda folder: {"columns": {"text": "body"}},
        ["corpus.columns.text", "a.parquet has no column 'body'; allowed: one of its columns: id, title, text, year"],
    ),
    "parquet: no such title": (
        make.parquet,
        lambda folder: {"columns": {"title": "headline"}},
        ["corpus.columns.title", "no column 'headline'"],
    ),
    "parquet: no such field": (
        make.parquet,
        lambda folder: {"fields": {"lang": "string"}},
        ["corpus.fields.lang", "no column 'lang'"],
    ),
    "msmarco: no such folder": (
        make.msmarco,
        lambda folder: {"path": str(folder / "absent")},
        ["corpus.path: got", "no such folder; allowed: a folder with collection.tsv"],
    ),
    "msmarco: no queries": (
        make.msmarco,
        lambda folder: (folder / "queries.dev.small.tsv").unlink() or {},
        ["queries.dev.small.tsv is missing"],
    ),
    "msmarco: no judgements": (
        make.msmarco,
        lambda folder: [path.unlink() for path in folder.glob("qrels*")] and {},
        ["holds no qrels.train.tsv nor qrels.dev.tsv"],
    ),
    "msmarco: a collection of three columns": (
        make.msmarco,
        lambda folder: (folder / "collection.tsv").write_text("1\ttitle\ttext\n" * 40) and {},
        ["collection.tsv: line 1: got '1\\ttitle\\ttext'", "2 columns split by tabs: id, text"],
    ),
    "msmarco: queries of one column": (
        make.msmarco,
        lambda folder: (folder / "queries.train.tsv").write_text("1 which\n2 what\n") and {},
        ["queries.train.tsv: line 1: got '1 which'", "2 columns split by tabs: id, text"],
    ),
    "msmarco: judgements of three columns": (
        make.msmarco,
        lambda folder: (folder / "qrels.train.tsv").write_text("1\t2\t1\n") and {},
        ["qrels.train.tsv: line 1: got '1\\t2\\t1'", "4 columns: query id, 0, passage id and grade"],
    ),
    "ir_datasets: no such id": (
        make.ir_datasets,
        lambda folder: {"dataset": "beir/nowhere"},
        ["corpus.dataset: got 'beir/nowhere', which ir_datasets does not know"],
    ),
    "ir_datasets: no such split": (
        make.ir_datasets,
        lambda folder: {"splits": {"test": "beir/nowhere"}},
        ["corpus.splits.test: got 'beir/nowhere'"],
    ),
    "ir_datasets: a split without judgements": (
        make.ir_datasets,
        lambda folder: {"splits": {"test": folder.as_posix().strip("/")}},
        ["corpus.splits.test", "lacks queries or judgements"],
    ),
    "huggingface: no such folder": (
        make.huggingface,
        lambda folder: {"path": f"{folder}-absent"},
        ["corpus.path: got", "no such folder; allowed: a folder, or a hub id"],
    ),
    "huggingface: no judgements": (
        make.huggingface,
        lambda folder: {"judgements": f"{folder}-absent"},
        ["corpus.judgements: got", "no such folder"],
    ),
    "huggingface: cut off": (
        make.huggingface,
        lambda folder: cut_off(folder / "texts" / "corpus.parquet") or {},
        ["corpus.path", "configuration corpus, cannot be read"],
    ),
    "huggingface: no such column": (
        make.huggingface,
        lambda folder: without(folder / "texts" / "corpus.parquet", "_id") or {},
        ["corpus.path", "no column '_id' in corpus; allowed: title, text, year"],
    ),
    "huggingface: no such field": (
        make.huggingface,
        lambda folder: {"fields": {"lang": "string"}},
        ["corpus.fields.lang", "no column 'lang'"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name, stage, folder):
    source, change, said = CASES[name]
    section = source(folder)
    message = refusal(stage, section | change(folder))
    for fragment in said:
        assert fragment in message


MISSING = {"ir_datasets": (make.ir_datasets, "ir-datasets"), "datasets": (make.huggingface, "huggingface")}


@pytest.mark.parametrize("package", MISSING)
def test_a_missing_package_is_named_with_its_extra(package, stage, folder, monkeypatch):
    source, extra = MISSING[package]
    section = source(folder)
    monkeypatch.setitem(sys.modules, package, None)
    assert f"pip install 'rayhier[{extra}]'" in refusal(stage, section)


def test_a_hub_that_is_away(stage, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    assert "http://127.0.0.1:1 did not provide a data set" in refusal(stage, {"type": "huggingface", "path": "a/b"})
    known = {"revision": "0" * 40, "judgements_revision": "0" * 40}
    message = refusal(stage, {"type": "huggingface", "path": "a/b", **known})
    assert "http://127.0.0.1:1 did not provide a data set" in message


def test_rows_of_the_wrong_shape_are_rejected_where_others_are_right(stage, test_stage, folder):
    section = make.msmarco(folder)
    with (folder / "collection.tsv").open("a") as opened:
        opened.write("\n10\ttitle\ttext\nalone\n\tno id\nd1\tagain\n11\t\n")
    with (folder / "qrels.dev.small.tsv").open("a") as opened:
        opened.write("q0 0 d3 1\nq0\td3\t1\n")
    made = stage(section)
    test = test_stage(made, section)
    tables = [pq.read_table(artifact.path("rejected.parquet")) for artifact in (made, test)]
    assert [tuple(row.values()) for table in tables for row in table.to_pylist()] == [
        ("collection.tsv", 11, "wrong number of columns", r"10\ttitle\ttext"),
        ("collection.tsv", 12, "wrong number of columns", "alone"),
        ("collection.tsv", 13, "missing id", r"\tno id"),
        ("collection.tsv", 14, "duplicate id", "d1"),
        ("collection.tsv", 15, "empty text", r"11\t"),
        ("qrels.dev.small.tsv", 5, "wrong number of columns", r"q0\td3\t1"),
    ]
    assert made.record.counts["documents"]["read"] == 14
    assert test.record.counts["splits"]["test"]["judgements"] == 4


@pytest.mark.parametrize("rows", [[], [{"key": "d1", "text": "again"}]])
def test_rejected_rows_are_said_to_lie_somewhere_where_there_are_any(stage, folder, monkeypatch, rows):
    said = []
    monkeypatch.setattr(corpus, "say", said.append)
    section = make.jsonl(folder)
    make.write_jsonl(folder / "documents" / "c.jsonl", [{"key": "d9", "text": "x"}, *rows])
    made = stage(section)
    assert [line for line in said if ".parquet" in line] == [
        f"  rejected rows: {made.path('rejected.parquet')}" for _ in rows
    ]


def test_fields_of_the_wrong_type_are_rejected_and_missing_ones_null(stage, folder):
    documents = [{"id": "a", "text": "x", "year": 1}, {"id": "b", "text": "x", "year": "1"}, {"id": "c", "text": "x"}]
    path = make.write_jsonl(folder / "documents.jsonl", [*documents, {"id": "d", "text": "x", "year": None}])
    queries = make.write_jsonl(folder / "queries.jsonl", [{"id": 1, "text": "x"}])
    (folder / "test.tsv").write_text("1\ta\t1\n")
    section = {"documents": str(path), "queries": str(queries), "judgements": {"test": str(folder / "test.tsv")}}
    made = stage({"type": "jsonl", **section, "fields": {"year": "int"}})
    assert pq.read_table(made.path(made.names("documents/")[0]))["year"].to_pylist() == [1, None, None]
    assert made.record.counts["documents"]["rejected"] == {"field of the wrong type": 1}
    assert made.record.counts["fields"] == {"year": 1}


def test_the_command_says_so_on_one_screen(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"name: a\nworkdir: {tmp_path}/work\ncorpus: {{type: huggingface, path: a/b}}\n"
        "encoder: {model: unused}\nrouter: {type: learned_ivf}\n"
    )
    surroundings = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:1"}
    command = [sys.executable, "-m", "rayhier.run", str(spec)]
    ended = subprocess.run(command, capture_output=True, text=True, env=surroundings, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: corpus.path: got 'a/b': no such folder, and http://127.0.0.1:1 did not")
    assert len(ended.stderr.splitlines()) == 1
