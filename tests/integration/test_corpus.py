"""The corpus stage on the cluster."""

import json
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rayhier import run
from rayhier.corpus import lines as corpus_lines
from rayhier.corpus import stage as corpus
from rayhier.evaluate.stage import read_test
from rayhier.executor.here import Here
from rayhier.executor.ray import RayExecutor
from rayhier.spec import InputError
from rayhier.storage.artifact import Artifact, Place
from rayhier.storage.attempt import Attempt
from rayhier.storage.leaf_map import LeafMap

from ..unit.corpus.conftest import documents, job, rows

HERE = Here()


def build(spec, place, executor=HERE):
    with Attempt.start(place) as attempt:
        made = corpus.build(executor, spec, attempt)
        artifact = attempt.publish("corpus", {}, made)
    artifact.verify()
    return artifact


def document(key, text, **more):
    return json.dumps({"_id": key, "text": text, **more}).encode() + b"\n"


@pytest.fixture
def messy(tmp_path, monkeypatch):
    """Eight lines in ranges of 64 bytes: every line is a part, or nearly."""
    monkeypatch.setattr(corpus_lines, "SMALLEST_RANGE", 64)
    folder = tmp_path / "messy"
    (folder / "qrels").mkdir(parents=True)
    lines = [
        document("a", "first of its name " * 4, title="A"),
        b"\n",
        document("b", "not a text: ?").replace(b"?", b"\xff"),
        document("c", "x" * 100_001),
        document("a", "second of its name " * 4),
        document("d", " "),
        document("e", "the last one that counts " * 4),
        document("c", "again, and the only row of its part " * 4),
    ]
    (folder / "corpus.jsonl").write_bytes(b"".join(lines))
    queries = [
        document("q1", "which"),
        document("q2", "what"),
        document("q2", "twice"),
        document("q3", ""),
        document("q4", "where"),
    ]
    (folder / "queries.jsonl").write_bytes(b"".join(queries))
    train = "query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t1\nq3\ta\t1\nq2\tc\t2\nq2\tc\t1\nq1\te\n"
    (folder / "qrels" / "train.tsv").write_text(train)
    (folder / "qrels" / "test.tsv").write_text("q1\te\t1\nq2\ta\t0\nq2\td\tone\nq4\te\t1\n")
    return folder


def test_a_messy_folder_keeps_what_is_good_and_says_why_not_the_rest(cluster, messy, tmp_path):
    spec = job({"type": "beir", "path": str(messy)})
    artifact = build(spec, Place(tmp_path / "corpus" / "one"), RayExecutor())

    found = documents(artifact)
    assert found["doc_id"].to_pylist() == ["a", "c", "e"]
    assert found["text"][0].as_py().startswith("first")
    assert all(pq.read_metadata(artifact.path(name)).num_rows for name in artifact.names("documents/"))
    assert rows(artifact, "queries.parquet") == [("q1", "which"), ("q2", "what")]
    assert rows(artifact, "rejected.parquet") == [
        ("corpus.jsonl", 3, "invalid UTF-8", '{"_id": "b", "text": "not a text: \\xff"}'),
        ("corpus.jsonl", 5, "duplicate id", "a"),
        ("corpus.jsonl", 6, "empty text", '{"_id": "d", "text": " "}'),
        ("corpus.jsonl", 8, "duplicate id", "c"),
        ("qrels/train.tsv", 3, "unknown document", "q1 b 1"),
        ("qrels/train.tsv", 4, "unknown query", "q3 a 1"),
        ("qrels/train.tsv", 6, "duplicate judgement", "q2 c 1"),
        ("qrels/train.tsv", 7, "wrong number of columns", r"q1\te"),
    ]
    judged = Counter(rows(artifact, "judgements/train.parquet") + rows(artifact, "judgements/dev.parquet"))
    assert judged == Counter([("q1", "a", 1), ("q2", "c", 2)])
    counts = artifact.record.counts
    assert counts["documents"] == {
        "read": 7,
        "accepted": 3,
        "rejected": {"duplicate id": 2, "empty text": 1, "invalid UTF-8": 1},
        "cut": 1,
    }
    assert counts["queries"]["accepted"] == 2
    assert counts["judgements"]["train"]["read"] == 6

    queries, others = read_test(spec, artifact)
    assert [tuple(row.values()) for row in queries.to_pylist()] == [("q1", "which"), ("q2", "what"), ("q4", "where")]
    assert [tuple(row.values()) for table in others.rejected() for row in table.to_pylist()] == [
        ("queries.jsonl", 3, "duplicate id", "q2"),
        ("queries.jsonl", 4, "empty text", '{"_id": "q3", "text": ""}'),
        ("qrels/test.tsv", 3, "wrong type", r"q2\td\tone"),
    ]
    assert others.counts()["splits"] == {"test": {"queries": 3, "judgements": 3, "relevant": 2}}
    assert others.counts()["asked_before"] == {"test": {"queries": 3, "by_id": 2, "by_text": 0}}
    assert {file.name.partition("/")[0] for file in artifact.record.files} == {
        "documents",
        "judgements",
        "queries.parquet",
        "rejected.parquet",
    }


def test_a_crashed_build_makes_only_the_missing_parts(messy, tmp_path, monkeypatch):
    spec = job({"type": "beir", "path": str(messy)})
    place = Place(tmp_path / "corpus" / "crashed")

    def crash(*arguments):
        raise OSError("the machine went away")

    with monkeypatch.context() as patched:
        whole = build(spec, Place(tmp_path / "corpus" / "whole"))
        patched.setattr(corpus.tables, "write", crash)
        with pytest.raises(OSError, match="went away"), Attempt.start(place) as attempt:
            corpus.build(HERE, spec, attempt)
    root = attempt.root
    first, *others = sorted((root / "documents").iterdir())
    first.unlink()
    kept = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in others}

    made = []

    class Watched(Here):
        def stream(self, items, *rest):
            made.extend(items)
            return super().stream(items, *rest)

    resumed = build(spec, place, Watched())

    assert resumed.root == root
    assert 0 in {item["part"] for item in made}
    assert len(made) < len(corpus_lines.pieces((messy / "corpus.jsonl").stat().st_size))
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in others} == kept
    assert resumed.record.files == whole.record.files
    assert resumed.record.counts == whole.record.counts


def test_scifact(data, tmp_path):
    spec = job({"type": "beir", "path": str(data("scifact"))}, router={"type": "learned_ivf"})
    artifact = build(spec, Place(tmp_path / "corpus" / "scifact"))

    found = documents(artifact)
    assert len(artifact.names("documents/")) == 8
    assert len(found) == 5_183
    with (data("scifact") / "corpus.jsonl").open() as opened:
        assert found["doc_id"].to_pylist() == [json.loads(line)["_id"] for line in opened]
    counts = artifact.record.counts
    assert counts["language"] == "english"
    assert counts["documents"] == {"read": 5_183, "accepted": 5_183, "rejected": {}, "cut": 0}
    splits = counts["splits"]
    assert splits["train"]["queries"] + splits["dev"]["queries"] == 809
    assert splits["train"]["judgements"] + splits["dev"]["judgements"] == 919
    assert 50 <= splits["dev"]["queries"] <= 110
    queries, others = read_test(spec, artifact)
    assert len(queries) == 300
    assert others.counts()["splits"] == {"test": {"queries": 300, "judgements": 339, "relevant": 339}}


def test_python_docs(tmp_path):
    spec = job({"type": "python_docs"}, router={"type": "learned_ivf"})
    artifact = build(spec, Place(tmp_path / "corpus" / "python"))

    assert pq.read_metadata(artifact.path(artifact.names("documents/")[0])).num_rows == 250
    found = documents(artifact)["doc_id"].to_pylist()
    ids = set(found)
    assert len(ids) == len(found) >= 3_000
    judged = [row for split in ("train", "dev") for row in rows(artifact, f"judgements/{split}.parquet")]
    queries, others = read_test(spec, artifact)
    judged += [(row.query_id, row.doc_id, row.grade) for row in others.splits["test"]]
    assert sorted(judged) == sorted((f"q:{doc_id}", doc_id, 1) for doc_id in ids)
    assert len(queries) >= 250
    assert pq.read_metadata(artifact.path("rejected.parquet")).num_rows == sum(
        artifact.record.counts["documents"]["rejected"].values()
    )


def test_an_empty_corpus_is_refused(messy, tmp_path):
    (messy / "corpus.jsonl").write_bytes(b"not json\n\xff\n\n")
    spec = job({"type": "beir", "path": str(messy)})
    place = Place(tmp_path / "corpus" / "empty")
    with pytest.raises(InputError, match=r"messy/corpus.jsonl: no document accepted \(2 read; .*not JSON 1.*; allowed"):
        build(spec, place)
    assert place.published() is None


def test_a_damaged_parquet_file_is_named_by_the_worker_that_read_it(cluster, tmp_path, monkeypatch):
    for name in "ab":
        table = pa.table({"id": [f"{name}{n}" for n in range(99)], "text": [f"text {n}" for n in range(99)]})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    data = bytearray((tmp_path / "b.parquet").read_bytes())
    data[4 : len(data) // 3] = b"\xff" * (len(data) // 3 - 4)
    (tmp_path / "b.parquet").write_bytes(data)
    monkeypatch.chdir(tmp_path)  # workers were started elsewhere
    spec = job({"type": "parquet", "documents": "."}, cluster={"corpus": {"workers": 1}})
    with pytest.raises(InputError, match=r"b\.parquet: cannot be read as parquet .* allowed: a whole parquet file"):
        build(spec, Place(tmp_path / "corpus" / "damaged"), RayExecutor())


def test_passages_and_fields_reach_the_leaf_map(tiny_spec, tiny_corpus, tmp_path, here):
    here()
    documents = [json.loads(line) for line in (tiny_corpus / "corpus.jsonl").read_text().splitlines()]
    lines = [json.dumps({**row, "year": 1800 + n, "odd": bool(n % 2)}) + "\n" for n, row in enumerate(documents)]
    (tiny_corpus / "corpus.jsonl").write_text("".join(lines))
    judged = f"judgements: {{train: {tiny_corpus}/qrels/train.tsv, test: {tiny_corpus}/qrels/test.tsv}}"
    spec = tiny_spec(
        corpus=f"{{type: jsonl, documents: {tiny_corpus}/corpus.jsonl, queries: {tiny_corpus}/queries.jsonl, {judged}, "
        "columns: {id: _id}, passages: {words: 5, stride: 3}, fields: {year: int, odd: bool}}"
    )
    assert (
        run.main([str(spec), *(part for name in ("corpus", "embed", "train", "index") for part in ("--stage", name))])
        == 0
    )
    (index,) = (tmp_path / "work" / "index").iterdir()
    leaf_map = LeafMap.open(Artifact.open(index).root)
    names = ["doc_id", "parent", "text", "year", "odd"]
    table = pa.concat_tables([leaf_map.read(shard, [*names, "rank"]) for shard in leaf_map.manifest.shards])
    found = table.filter(pc.equal(table["rank"], 0)).drop_columns(["rank"]).to_pylist()
    wanted = []
    for n, row in enumerate(documents):
        words = row["text"].split()
        for number, text in enumerate((" ".join(words[:5]), " ".join(words[3:])), 1):
            doc_id = f"{row['_id']}#{number:04d}"
            wanted.append(dict(zip(names, (doc_id, row["_id"], text, 1800 + n, bool(n % 2)), strict=True)))
    assert sorted(found, key=lambda row: row["doc_id"]) == sorted(wanted, key=lambda row: row["doc_id"])
    assert leaf_map.manifest.documents == 2 * len(documents)
    assert leaf_map.manifest.words == "none"
