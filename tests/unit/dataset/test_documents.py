"""Queries, judgements and vectors as read from artifacts; documents that stand in for queries."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rayhier.dataset.documents import load_documents
from rayhier.dataset.holdout import NEIGHBOURS, holdout_rows
from rayhier.dataset.queries import load_queries
from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.storage import schemas

from ...toys import artifact, embedded, judgements

N, M = 40, 8


def texts():
    """What a corpus holds beside its judgements."""
    ids, asked = [f"d{row:02d}" for row in range(N)], ["q0", "q1", "q2", "q3"]
    documents = pa.table([ids, ids, [f"text of {name}" for name in ids]], schema=schemas.DOCUMENTS)
    return {
        "queries.parquet": pa.table([asked, [f"text of {name}" for name in asked]], schema=schemas.QUERIES),
        "documents/0.parquet": documents[:25],
        "documents/1.parquet": documents[25:],
    }


@pytest.fixture
def vectors(unit):
    return unit(np.random.default_rng(0), N, M)


@pytest.fixture
def queries(unit):
    return unit(np.random.default_rng(1), 4, M)


@pytest.fixture
def published(tmp_path, vectors, queries):
    """Forty documents in two files, four queries: q2 and q0 judged in test, none in dev."""
    ids = [f"d{row:02d}" for row in range(N)]
    tables = {
        "documents/0.parquet": embedded("doc_id", ids[:25], vectors[:25]),
        "documents/1.parquet": embedded("doc_id", ids[25:], vectors[25:]),
        "queries.parquet": embedded("query_id", ["q3", "q2", "q1", "q0"], queries),
    }
    judged = [("q0", "d05", 1), ("q2", "d30", 2), ("q2", "d05", 0)]
    corpus = {"judgements/test.parquet": judgements(judged), "judgements/dev.parquet": judgements([])} | texts()
    return artifact(tmp_path / "c", "corpus", corpus), artifact(tmp_path / "v", "vectors", tables)


def test_documents_keep_the_order_of_their_files(published, vectors):
    found = load_documents(*published)
    assert found.ids == [f"d{row:02d}" for row in range(N)]
    assert np.array_equal(found.vector_NM, vectors)
    some = load_documents(*published, lambda ids: pc.is_in(ids, pa.array(["d03", "d24", "d25"])))
    assert some.ids == ["d03", "d24", "d25"]
    assert np.array_equal(some.vector_NM, vectors[[3, 24, 25]])


def test_judged_queries_have_their_own_vectors_and_grades(published, queries):
    found = load_queries(*published, "test")
    assert found.ids == ["q2", "q0"]
    assert np.array_equal(found.vector_QM, queries[[1, 3]])
    assert found.texts == ["text of q2", "text of q0"]
    assert found.grades == {"q0": {"d05": 1}, "q2": {"d30": 2, "d05": 0}}
    nobody = load_queries(*published, "dev")
    assert (len(nobody), nobody.grades) == (0, {})


def test_a_tenth_is_held_out_whatever_the_order():
    ids = [f"d{row}" for row in range(500)]
    rows = holdout_rows(ids)
    assert len(set(rows)) == 50
    order = np.random.default_rng(0).permutation(500)
    shuffled = [ids[row] for row in order]
    assert {shuffled[row] for row in holdout_rows(shuffled)} == {ids[row] for row in rows}
    assert {ids[row] for row in rows} != set(ids[:50])


def test_a_passage_asks_for_the_ten_nearest_other_documents(vectors):
    ids = [f"d{row}" for row in range(N)]
    parents = [f"p{row % 14}" for row in range(N)]
    found = documents_as_queries(ids, parents, vectors)
    for row in holdout_rows(ids):
        near = [parents[other] for other in np.argsort(-(vectors @ vectors[row]))]
        wanted = [name for name in dict.fromkeys(near) if name != parents[row]][:10]
        assert found.grades[f"d{row}"] == dict.fromkeys(wanted, 1)


def documents_as_queries(ids, results, vectors):
    """Held-out documents, each with its nearest others."""
    documents = BaselineDocuments(pa.array(ids), pa.array(results), vectors)
    held = documents.holdout()
    return held.queries(documents.exact(held.vector_HM, NEIGHBOURS + 1))
