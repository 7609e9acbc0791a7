"""The corpus stage in this process, and one small collection in the layout of every source."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.corpus import stage as corpus
from rayhier.evaluate.stage import read_test, write_test
from rayhier.executor.here import Here
from rayhier.storage import source
from rayhier.storage.artifact import Place
from rayhier.storage.attempt import Attempt

from ... import toys

DOCUMENTS = [(f"d{n}", f"tree {n} has leaves and roots {'x' * n}", 2000 + n) for n in range(9)]
QUERIES = {"train": [(f"t{n}", f"which tree is {n}") for n in range(4)], "test": [("q0", "what"), ("q1", "where to")]}
JUDGED = {
    "train": [(f"t{n}", f"d{n}", 1) for n in range(4)],
    "test": [("q0", "d7", 2), ("q1", "d8", 0), ("q1", "d1", 1)],
}
README = """---
configs:
- config_name: corpus
  data_files: [{split: corpus, path: texts/corpus.*}]
- config_name: queries
  data_files: [{split: queries, path: texts/queries.*}]
---
"""


def job(corpus, **sections):
    return toys.job(**{"corpus": corpus, "router": {"type": "learned_ivf", "branching": 2}} | sections)


@pytest.fixture
def stage(tmp_path):
    """`stage({"type": …})`: a source through the whole stage, without a cluster; the published artifact."""

    def build(section, **sections):
        spec = job(section, **sections)
        source.describe(spec.corpus)
        with Attempt.start(Place(tmp_path / "corpus" / "made")) as attempt:
            artifact = attempt.publish("corpus", {}, corpus.build(Here(), spec, attempt))
        artifact.verify()
        return artifact

    return build


@pytest.fixture
def test_stage(tmp_path):
    """`test_stage(corpus, {"type": …})`: the test split of the source of a published corpus, vectors all zero."""

    def build(made, section):
        queries, rows = read_test(job(section), made)
        with Attempt.start(Place(tmp_path / "test" / "made")) as attempt:
            vector_QM = np.zeros((len(queries), 2), np.float32)
            return attempt.publish("test", {}, write_test(attempt.root, queries, vector_QM, rows))

    return build


def documents(artifact):
    return pa.concat_tables([pq.read_table(artifact.path(name)) for name in artifact.names("documents/")])


def rows(artifact, name):
    return [tuple(row.values()) for row in pq.read_table(artifact.path(name)).to_pylist()]


@pytest.fixture
def folder(tmp_path):
    """An empty folder for a source."""
    path = tmp_path / "source"
    path.mkdir()
    return path


def objects(key):
    """Documents and queries as JSON objects."""
    documents = [{key: name, "title": "", "text": text, "year": year} for name, text, year in DOCUMENTS]
    return documents, [{key: name, "text": text} for rows in QUERIES.values() for name, text in rows]


def write_jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_parquet(path, rows, group=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
    return path


def write_qrels(folder, header=True):
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in JUDGED.items():
        lines = ["query-id\tcorpus-id\tscore"] if header else []
        (folder / f"{split}.tsv").write_text("\n".join([*lines, *("\t".join(map(str, row)) for row in rows)]))
    return {split: str(folder / f"{split}.tsv") for split in JUDGED}


def beir(folder):
    documents, queries = objects("_id")
    write_jsonl(folder / "corpus.jsonl", documents)
    write_jsonl(folder / "queries.jsonl", queries)
    write_qrels(folder / "qrels")
    return {"type": "beir", "path": str(folder)}


def jsonl(folder):
    documents, queries = objects("key")
    write_jsonl(folder / "documents" / "a.jsonl", documents[:4])
    write_jsonl(folder / "documents" / "b.jsonl", documents[4:])
    (folder / "documents" / "notes.txt").write_text("not a document\n")
    asked = write_jsonl(folder / "asked.jsonl", queries)
    judged = write_qrels(folder, header=False)
    listed = {"documents": str(folder / "documents"), "queries": str(asked), "judgements": judged}
    return {"type": "jsonl", **listed, "columns": {"id": "key"}}


def parquet(folder):
    documents, queries = objects("id")
    write_parquet(folder / "documents" / "a.parquet", documents[:4], group=1)
    write_parquet(folder / "documents" / "b.parquet", documents[4:], group=2)
    asked = write_parquet(folder / "asked.parquet", queries)
    judged = write_qrels(folder)
    rows = [dict(zip(("query-id", "corpus-id", "score"), row, strict=True)) for row in JUDGED["test"]]
    judged["test"] = str(write_parquet(folder / "judged.parquet", rows))
    return {
        "type": "parquet",
        "documents": str(folder / "documents" / "*.parquet"),
        "queries": str(asked),
        "judgements": judged,
    }


def msmarco(folder):
    def write(name, rows):
        (folder / name).write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))

    write("collection.tsv", [row[:2] for row in DOCUMENTS])
    for split, name in {"train": "train", "test": "dev.small"}.items():
        write(f"queries.{name}.tsv", QUERIES[split])
        write(f"qrels.{name}.tsv", [(query, 0, document, grade) for query, document, grade in JUDGED[split]])
    write("queries.dev.tsv", [("other", "one that is not in dev.small")])
    write("qrels.dev.tsv", [("other", 0, "d1", 1)])
    return {"type": "msmarco", "path": str(folder)}


def huggingface(folder):
    documents, queries = objects("_id")
    (folder / "README.md").write_text(README)
    write_parquet(folder / "texts" / "corpus.parquet", documents)
    write_parquet(folder / "texts" / "queries.parquet", queries)
    write_qrels(folder.with_name(f"{folder.name}-qrels"))
    return {"type": "huggingface", "path": str(folder)}


def ir_datasets(folder):
    """Registers the collection as `FOLDER/train` and `FOLDER/test`, under a name no other test has."""
    import ir_datasets as library
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import TrecQrels, TsvDocs, TsvQueries
    from ir_datasets.util import LocalDownload

    msmarco(folder)
    name = folder.as_posix().strip("/")
    documents = TsvDocs(LocalDownload(folder / "collection.tsv"))
    library.registry.register(name, Dataset(documents))
    for split, file in {"train": "train", "test": "dev.small"}.items():
        queries = TsvQueries(LocalDownload(folder / f"queries.{file}.tsv"))
        qrels = TrecQrels(LocalDownload(folder / f"qrels.{file}.tsv"), {})
        library.registry.register(f"{name}/{split}", Dataset(documents, queries, qrels))
    return {"type": "ir_datasets", "dataset": name}
