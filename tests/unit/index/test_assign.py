"""Routing one part: head, then router, by hand; every document once."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file

from rayhier.index.assign import Assigner, LeafMeans, leaf_counts, read_part, spread
from rayhier.index.shards import write_shard
from rayhier.model.ehi import EhiRouter
from rayhier.model.router import save_router
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import columns, files, schemas
from rayhier.storage.artifact import Artifact, Record

N, M, B = 40, 6, 5
HEAD = EncoderSpec(model="package:none")


@pytest.fixture
def matrix():
    return (np.eye(M) + 0.5 * np.random.default_rng(1).normal(size=(M, M))).astype(np.float32)


@pytest.fixture
def model(tmp_path, matrix):
    """A published model: a head in sentence-transformers' layout and a router."""
    root = tmp_path / "model" / "attempt"
    (root / "encoder" / "2_Dense").mkdir(parents=True)
    save_file({"linear.weight": torch.from_numpy(matrix)}, root / "encoder" / "2_Dense" / "model.safetensors")
    torch.manual_seed(0)
    router = EhiRouter(M, B, 1, "relu")
    for parameter in router.parameters():
        torch.nn.init.normal_(parameter)
    save_router(router, root / "router")
    record = {"kind": "model", "fingerprint": "f", "attempt": "attempt", "seconds": 0}
    return Artifact(tmp_path / "model", Record(**record, inputs={}, files=[], counts={}, versions={}))


@pytest.fixture
def vectors():
    found = np.random.default_rng(0).normal(size=(N, M)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.fixture
def part(vectors):
    """Documents and base vectors, ids not in order."""
    ids = [f"d{row:02d}" for row in np.random.default_rng(2).permutation(N)]
    documents = pa.table([ids, [f"title {n}" for n in ids], [f"text {n}" for n in ids]], schema=schemas.DOCUMENTS)
    column = columns.vector_column(vectors, pa.float32())
    return documents, pa.table([ids, column], schema=schemas.vectors("doc_id", M))


def by_hand(model, matrix, vectors):
    """Trained vectors and log-probabilities of all leaves."""
    trained = vectors @ matrix.T
    trained /= np.linalg.norm(trained, axis=1, keepdims=True)
    weights = load_file(model.path("router/router.safetensors"))
    k = trained + np.maximum(trained @ weights["U.0.weight"].T, 0)
    z = k @ weights["W.0.weight"].T
    return trained, z - np.log(np.exp(z).sum(axis=1, keepdims=True))


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-6), ("float16", 1e-3)])
def test_a_document_gets_its_most_probable_leaf(model, matrix, vectors, part, precision, tolerance):
    table = Assigner(model, HEAD, precision)(*part)
    trained, logp = by_hand(model, matrix, vectors)
    place = {name: row for row, name in enumerate(part[0]["doc_id"].to_pylist())}
    assert table.schema == schemas.leaf_map(M, precision)
    assert sorted(table["doc_id"].to_pylist()) == sorted(place)
    for row in table.to_pylist():
        own = place[row["doc_id"]]
        assert row["leaf"] == logp[own].argmax()
        assert (row["rank"], row["leaves"]) == (0, [row["leaf"]])
        assert row["log_prob"] == pytest.approx(logp[own].max(), abs=1e-5)
        np.testing.assert_allclose(row["vector"], trained[own], atol=tolerance)
        assert (row["title"], row["text"]) == (f"title {row['doc_id']}", f"text {row['doc_id']}")


def test_rows_are_sorted_by_leaf_then_id(model, part):
    table = Assigner(model, HEAD, "float32")(*part)
    keys = list(zip(table["leaf"].to_pylist(), table["doc_id"].to_pylist(), strict=True))
    assert keys == sorted(keys)
    assert len({leaf for leaf, _ in keys}) > 2


def test_without_a_head_the_base_vectors_are_routed(model, part, vectors):
    model.path("encoder/2_Dense/model.safetensors").unlink()
    table = Assigner(model, HEAD, "float32")(*part)
    place = {name: row for row, name in enumerate(part[0]["doc_id"].to_pylist())}
    for row in table.to_pylist():
        np.testing.assert_allclose(row["vector"], vectors[place[row["doc_id"]]], atol=1e-6)


def test_what_documents_carry_goes_along(model, part, tmp_path):
    documents, vectors = part
    ids = documents["doc_id"].to_pylist()
    carried = {"parent": [name[:2] for name in ids], "year": [None, *range(1, N)], "open": [True] * N}
    schema = schemas.documents({"year": "int", "open": "bool"}, passages=True)
    documents = pa.table([*documents.columns, *carried.values()], schema=schema)
    table = Assigner(model, HEAD, "float16")(documents, vectors)
    assert table.schema == schemas.leaf_map(M, "float16", schema)
    assert table.schema.names[-3:] == ["parent", "year", "open"]
    wanted = {name: row for name, *row in zip(ids, *carried.values(), strict=True)}
    assert {row["doc_id"]: [row[name] for name in carried] for row in table.to_pylist()} == wanted

    routed = Assigner(model, HEAD, "float16", candidates=B)(documents, vectors)
    both = spread(routed, np.eye(B, M, dtype=np.float32), "next_best")
    assert all([row[name] for name in carried] == wanted[row["doc_id"]] for row in both.to_pylist())
    assert both.num_rows == 2 * N

    files.write_parquet(tmp_path, "routed.parquet", [table], table.schema)
    counts = leaf_counts(table["leaf"].to_numpy(), B)
    write_shard(tmp_path, "shard.parquet", [tmp_path / "routed.parquet"], 0, B, counts)
    stored = pq.read_table(tmp_path / "shard.parquet")
    assert {row["doc_id"]: [row[name] for name in carried] for row in stored.to_pylist()} == wanted


def test_other_documents_or_another_order_are_refused(model, part):
    documents, vectors = part
    with pytest.raises(ValueError, match="not the same ids in the same order"):
        Assigner(model, HEAD, "float32")(documents, vectors.take(list(range(N))[::-1]))
    with pytest.raises(ValueError, match="not the same ids in the same order"):
        Assigner(model, HEAD, "float32")(documents, vectors.slice(1))


def test_a_part_without_documents(model, part):
    table = Assigner(model, HEAD, "float16")(*(table.slice(0, 0) for table in part))
    assert (table.num_rows, table.schema) == (0, schemas.leaf_map(M, "float16"))


def test_a_part_is_read_as_it_was_written(tmp_path, part):
    documents, vectors = part
    files.write_parquet(tmp_path, "documents.parquet", [documents], documents.schema)
    files.write_parquet(tmp_path, "vectors.parquet", [vectors], vectors.schema)
    found = read_part(tmp_path / "documents.parquet", tmp_path / "vectors.parquet")
    assert found[0].equals(documents)
    assert found[1].equals(vectors)


def test_leaf_counts_name_empty_leaves_too():
    assert json.dumps(leaf_counts(np.array([0, 2, 2], np.int32), 4)) == "[1, 0, 2, 0]"


def placed(routed):
    """Vectors and leaves of a routed part."""
    return columns.matrix(routed["vector"]), routed["leaf"].to_numpy()


def test_two_leaves_a_document(model, part, matrix, vectors):
    routed = Assigner(model, HEAD, "float32", candidates=B)(*part)
    means = LeafMeans(B, M)
    means.add(*placed(routed))
    table = spread(routed, means.means(), "next_best")
    _, log_probs = by_hand(model, matrix, vectors)
    order = np.argsort(-log_probs, axis=1)
    ids = part[0]["doc_id"].to_pylist()
    rows = {(row["doc_id"], row["rank"]): row for row in table.to_pylist()}
    assert len(rows) == table.num_rows == 2 * N
    assert table.schema.names == schemas.leaf_map(M, "float32").names
    for n, name in enumerate(ids):
        for rank in (0, 1):
            row = rows[name, rank]
            assert row["leaves"] == order[n, :2].tolist()
            assert row["leaf"] == order[n, rank]
            assert row["log_prob"] == pytest.approx(log_probs[n, order[n, rank]], abs=1e-5)
            assert row["title"] == rows[name, 0]["title"]
            assert row["vector"] == rows[name, 0]["vector"]
    leaves = table["leaf"].to_numpy()
    assert (np.diff(leaves) >= 0).all()


def test_leaf_means_are_unit_means(model, part):
    routed = Assigner(model, HEAD, "float32")(*part)
    means = LeafMeans(B + 1, M)
    means.add(*placed(routed.slice(0, 7)))
    means.add(*placed(routed.slice(7)))
    found, leaf = means.means(), routed["leaf"].to_numpy()
    for number in range(B + 1):
        own = columns.matrix(routed["vector"])[leaf == number]
        wanted = own.mean(axis=0) / np.linalg.norm(own.mean(axis=0)) if len(own) else np.zeros(M)
        np.testing.assert_allclose(found[number], wanted, atol=1e-5)
