"""Which queries pick the best epoch: judged ones, or what is held out in their place."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.dataset.documents import Documents
from rayhier.storage import columns, schemas
from rayhier.train.phases import dev_and_spans

from ...toys import artifact, embedded, judgements

N, M = 40, 4


@pytest.fixture
def material(tmp_path):
    """A corpus with a judged dev query or none, its vectors with pseudo-queries or none, and generated queries."""
    rng = np.random.default_rng(0)
    documents = Documents([f"d{row}" for row in range(N)], rng.normal(size=(N, M)).astype(np.float32))

    def vectors_of(ids):
        return embedded("query_id", ids, rng.normal(size=(len(ids), M)).astype(np.float32))

    def make(judged, spans):
        texts = [documents.ids, [""] * N, [f"text of {name}" for name in documents.ids]]
        corpus = {
            "documents/part-00000.parquet": pa.table(texts, schema=schemas.DOCUMENTS),
            "queries.parquet": pa.table([["a"], ["text of a"]], schema=schemas.QUERIES),
            "judgements/dev.parquet": judgements([("a", "d3", int(judged))]),
        }
        vectors = {"queries.parquet": vectors_of(["a"]), "generated.parquet": vectors_of(["g0", "g1"])}
        if spans:
            drawn = [name for name in documents.ids for _ in range(2)]
            column = columns.vector_column(rng.normal(size=(len(drawn), M)).astype(np.float32), pa.float32())
            told = pa.table([drawn, [f"of {name}" for name in drawn], column], schema=schemas.spans(M))
            vectors["spans/part-00000.parquet"] = told
        generated = {
            "queries.parquet": pa.table([["g0", "g1"], ["generated a", "generated b"]], schema=schemas.QUERIES),
            "pairs.parquet": pa.table([["g0", "g1"], ["d5", "d9"]], schema=schemas.PAIRS),
        }
        first, second, third = (
            artifact(tmp_path / kind, kind, tables)
            for kind, tables in {"corpus": corpus, "vectors": vectors, "generated": generated}.items()
        )
        return first, second, documents, third

    return make


@pytest.mark.parametrize(
    ("judged", "given", "asked"), [(True, False, {"a"}), (True, True, {"a"}), (False, True, {"g0", "g1"})]
)
def test_judged_dev_queries_are_asked_or_else_generated_ones_and_all_spans_teach(material, judged, given, asked):
    corpus, vectors, documents, generated = material(judged=judged, spans=True)
    dev, spans = dev_and_spans(corpus, vectors, documents, generated if given else None)
    assert len(dev) == 1
    assert set(dev.ids) <= asked
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
