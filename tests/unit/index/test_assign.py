"""Documents in leaves, by hand: every document once in its leaf, or once in each of its two."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.index.assign import Assigner, read_part
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError
from rayhier.storage import columns, parquet, schemas

from ...toys import job

N, M, B = 40, 6, 5


def spec(**index):
    return job(router={"type": "ehi"}, index=index)


@pytest.fixture
def router():
    torch.manual_seed(0)
    made = EhiRouter(M, B, 1, "relu")
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    made.cells.centroid_LM.copy_(torch.eye(B, M))
    return made.requires_grad_(requires_grad=False)


@pytest.fixture
def documents():
    """Ids not in order."""
    ids = [f"d{row:02d}" for row in np.random.default_rng(2).permutation(N)]
    return pa.table([ids, [f"title {n}" for n in ids], [f"text {n}" for n in ids]], schema=schemas.DOCUMENTS)


def by_hand(router, vectors):
    """Log-probabilities of all leaves."""
    u, w = (layer[0].weight.numpy() for layer in (router.U, router.W))
    z = (vectors + np.maximum(vectors @ u.T, 0)) @ w.T
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


@pytest.mark.parametrize(("precision", "tolerance", "leaves"), [("float32", 1e-6, 1), ("float16", 1e-3, 2)])
def test_a_document_gets_its_most_probable_leaf(router, vectors, documents, precision, tolerance, leaves):
    table = Assigner(router, spec(vectors=precision, leaves_per_document=leaves))(documents, Encoded(vectors))
    logp = by_hand(router, vectors)
    place = {name: row for row, name in enumerate(documents["doc_id"].to_pylist())}
    assert table.schema == schemas.leaf_map(M, precision)
    rows = {(row["doc_id"], row["rank"]): row for row in table.to_pylist()}
    assert rows.keys() == {(name, rank) for name in place for rank in range(leaves)}
    assert len(rows) == table.num_rows
    for (name, rank), row in rows.items():
        own = place[name]
        assert row["leaves"][0] == logp[own].argmax()
        assert (row["leaf"], len(set(row["leaves"]))) == (row["leaves"][rank], leaves)
        assert row["log_prob"] == pytest.approx(logp[own, row["leaf"]], abs=1e-5)
        np.testing.assert_allclose(row["vector"], vectors[own], atol=tolerance)
        assert (row["title"], row["text"]) == (f"title {name}", f"text {name}")


@pytest.mark.parametrize(
    ("value", "precision"), [(np.nan, "float32"), (np.inf, "float32"), (1e5, "float16")], ids=["nan", "inf", "large"]
)
def test_vectors_that_are_no_numbers_are_named(router, vectors, documents, value, precision):
    vectors[7, 3] = value
    with pytest.raises(InputError, match=f"vectors: 1 of 40 .*'{documents['doc_id'][7]}'; allowed: .*{precision}"):
        Assigner(router, spec(vectors=precision))(documents, Encoded(vectors))


def test_a_part_is_read_as_it_was_written_and_never_in_another_order(tmp_path, documents, vectors):
    places = tmp_path / "documents.parquet", tmp_path / "vectors.parquet"
    parquet.write(tmp_path, "documents.parquet", [documents], documents.schema)
    column = columns.vector_column(vectors, pa.float32())
    table = pa.table([documents["doc_id"], column], schema=schemas.vectors("doc_id", M))
    parquet.write(tmp_path, "vectors.parquet", [table], table.schema)
    found, base = read_part(*places)
    assert found.equals(documents)
    assert np.array_equal(base, vectors)
    for other in (table[::-1], table[1:]):
        parquet.write(tmp_path, "vectors.parquet", [other], other.schema)
        with pytest.raises(ValueError, match="same ids in the same order"):
            read_part(*places)
