"""Which queries pick the best epoch: judged ones, or what is held out in their place."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.documents import Documents
from rayhier.storage import columns, files, schemas
from rayhier.storage.artifact import Artifact, Record
from rayhier.train.phases import dev_and_spans

N, M = 40, 4


def artifact(folder, kind, tables):
    made = tuple(
        files.write_parquet(folder / kind / "a", name, [pa.table(values, schema=schema)], schema)
        for name, schema, values in tables
    )
    record = {"kind": kind, "fingerprint": "f", "attempt": "a", "inputs": {}, "counts": {}, "versions": {}}
    return Artifact(folder / kind, Record(**record, files=made, seconds=0))


@pytest.fixture
def material(tmp_path):
    """A corpus with a judged dev query or none, its vectors with pseudo-queries or none, and generated queries."""
    rng = np.random.default_rng(0)
    documents = Documents([f"d{row}" for row in range(N)], rng.normal(size=(N, M)).astype(np.float32))

    def column(n):
        return columns.vector_column(rng.normal(size=(n, M)).astype(np.float32), pa.float32())

    def make(judged, spans):
        grade = 1 if judged else 0
        texts = [documents.ids, [""] * N, [f"text of {name}" for name in documents.ids]]
        corpus = artifact(
            tmp_path,
            "corpus",
            [
                ("documents/part-00000.parquet", schemas.DOCUMENTS, texts),
                ("queries.parquet", schemas.QUERIES, [["a"], ["text of a"]]),
                ("judgements/dev.parquet", schemas.JUDGEMENTS, [["a"], ["d3"], [grade]]),
            ],
        )
        drawn = [name for name in documents.ids for _ in range(2)] if spans else []
        own = [("spans/part-00000.parquet", schemas.spans(M), [drawn, [f"of {name}" for name in drawn], column(2 * N)])]
        asked = schemas.vectors("query_id", M)
        vectors = artifact(
            tmp_path,
            "vectors",
            [
                ("queries.parquet", asked, [["a"], column(1)]),
                ("generated.parquet", asked, [["g0", "g1"], column(2)]),
                *(own if spans else []),
            ],
        )
        generated = artifact(
            tmp_path,
            "generated",
            [
                ("queries.parquet", schemas.QUERIES, [["g0", "g1"], ["generated a", "generated b"]]),
                ("pairs.parquet", schemas.PAIRS, [["g0", "g1"], ["d5", "d9"]]),
            ],
        )
        return corpus, vectors, documents, generated

    return make


def test_judged_dev_queries_are_asked_and_all_spans_teach(material):
    corpus, vectors, documents, generated = material(judged=True, spans=True)
    for own in (None, generated):
        dev, spans = dev_and_spans(corpus, vectors, documents, own)
        assert list(dev.ids) == ["a"]
        assert len(spans) == 2 * N


def test_without_them_generated_queries_are_held_out(material):
    corpus, vectors, documents, generated = material(judged=False, spans=True)
    dev, spans = dev_and_spans(corpus, vectors, documents, generated)
    assert len(dev) == 1
    assert dev.ids[0] in {"g0", "g1"}
    assert len(spans) == 2 * N


def test_or_else_pseudo_queries_of_held_out_documents(material):
    corpus, vectors, documents, _ = material(judged=False, spans=True)
    dev, spans = dev_and_spans(corpus, vectors, documents)
    held = {name for grades in dev.grades.values() for name in grades}
    assert len(held) == N // 10
    assert [next(iter(dev.grades[name])) for name in dev.ids] == [text.removeprefix("of ") for text in dev.texts]
    assert {documents.ids[row] for row in spans.row_P} == set(documents.ids) - held


def test_or_else_held_out_documents_that_look_for_their_neighbours(material):
    corpus, vectors, documents, _ = material(judged=False, spans=False)
    dev, spans = dev_and_spans(corpus, vectors, documents)
    assert set(dev.ids) <= set(documents.ids)
    assert spans is None
