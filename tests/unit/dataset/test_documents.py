"""Queries, judgements and vectors as read from artifacts; documents that stand in for queries."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rayhier.dataset.documents import load_documents
from rayhier.dataset.holdout import NEIGHBOURS, holdout_rows
from rayhier.dataset.queries import load_queries
from rayhier.evaluate.baselines.documents import BaselineDocuments
from rayhier.storage import columns, schemas
from rayhier.train.data import neighbours
from rayhier.train.phases import dev_and_spans

from ...toys import artifact

N, M = 40, 8


def vectors_table(key, ids, vectors):
    return pa.table([ids, columns.vector_column(vectors, pa.float32())], schema=schemas.vectors(key, vectors.shape[1]))


def judgements(rows):
    return pa.table([list(column) for column in zip(*rows, strict=True)] or [[], [], []], schema=schemas.JUDGEMENTS)


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
        "documents/0.parquet": vectors_table("doc_id", ids[:25], vectors[:25]),
        "documents/1.parquet": vectors_table("doc_id", ids[25:], vectors[25:]),
        "queries.parquet": vectors_table("query_id", ["q3", "q2", "q1", "q0"], queries),
    }
    judged = [("q0", "d05", 1), ("q2", "d30", 2), ("q2", "d05", 0)]
    corpus = {"judgements/test.parquet": judgements(judged), "judgements/dev.parquet": judgements([])} | texts()
    return artifact(tmp_path / "c", "corpus", corpus), artifact(tmp_path / "v", "vectors", tables)


def test_documents_keep_the_order_of_their_files(published, vectors):
    found = load_documents(*published)
    assert found.ids == [f"d{row:02d}" for row in range(N)]
    assert np.array_equal(found.vector_NM, vectors)


def test_judged_queries_have_their_own_vectors_and_grades(published, queries):
    found = load_queries(*published, "test")
    assert found.ids == ["q2", "q0"]
    assert np.array_equal(found.vector_QM, queries[[1, 3]])
    assert found.texts == ["text of q2", "text of q0"]
    assert found.grades == {"q0": {"d05": 1}, "q2": {"d30": 2, "d05": 0}}


def test_a_split_without_judgements_has_no_queries(published):
    found = load_queries(*published, "dev")
    assert (len(found), found.grades) == (0, {})


@pytest.mark.parametrize(("grades", "asked"), [([], None), ([0, -1], None), ([0, 1], ["q3", "q0"])])
def test_held_out_documents_ask_unless_a_dev_judgement_is_above_zero(published, tmp_path, grades, asked):
    rows = [
        (query, document, grade) for query, document, grade in zip(["q0", "q3"], ["d05", "d30"], grades, strict=False)
    ]
    corpus = artifact(tmp_path / "dev", "corpus", {"judgements/dev.parquet": judgements(rows)} | texts())
    documents = load_documents(*published)
    found = dev_and_spans(corpus, published[1], documents)[0].ids
    held_out = [documents.ids[row] for row in holdout_rows(documents.ids)]
    assert sorted(found) == sorted(held_out if asked is None else asked)


def test_a_tenth_is_held_out_whatever_the_order():
    ids = [f"d{row}" for row in range(500)]
    rows = holdout_rows(ids)
    assert len(set(rows)) == 50
    order = np.random.default_rng(0).permutation(500)
    shuffled = [ids[row] for row in order]
    assert {shuffled[row] for row in holdout_rows(shuffled)} == {ids[row] for row in rows}
    assert {ids[row] for row in rows} != set(ids[:50])


def test_neighbours_are_the_nearest_others(vectors):
    rows = np.array([3, 0, 39])
    products = vectors @ vectors.T
    np.fill_diagonal(products, -np.inf)
    assert neighbours(vectors, rows, 5).tolist() == np.argsort(-products[rows], axis=1)[:, :5].tolist()


def test_neighbours_among_equal_vectors_are_never_oneself(vectors):
    equal = np.concatenate([np.repeat(vectors[:1], 12, axis=0), vectors[1:4]])
    found = neighbours(equal, np.arange(12), 3)
    assert found.shape == (12, 3)
    assert all(row not in others for row, others in enumerate(found.tolist()))
    assert found.max() < 12


def test_a_document_asks_for_its_ten_nearest_others(vectors):
    ids = [f"d{row}" for row in range(N)]
    held = holdout_rows(ids)
    found = documents_as_queries(ids, ids, vectors)
    assert found.ids == [ids[row] for row in held]
    assert np.array_equal(found.vector_QM, vectors[held])
    products = vectors @ vectors.T
    np.fill_diagonal(products, -np.inf)
    for row in held:
        assert found.grades[f"d{row}"] == {f"d{other}": 1 for other in np.argsort(-products[row])[:10]}


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


def test_some_documents(published, vectors):
    found = load_documents(*published, lambda ids: pc.is_in(ids, pa.array(["d03", "d24", "d25"])))
    assert found.ids == ["d03", "d24", "d25"]
    assert np.array_equal(found.vector_NM, vectors[[3, 24, 25]])
