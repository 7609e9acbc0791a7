"""Calibration of an index: the exact best documents over shards, and the floors at which they are found."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.evaluate.calibrate import largest_floors, leaves_of
from rayhier.evaluate.exact_best import exact_best
from rayhier.evaluate.promise import Promise, share_found
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.search.promised_beam import PromisedBeam
from rayhier.storage import columns, schemas
from rayhier.storage.leaf_map import LeafMap

N, M, L, Q, K = 90, 8, 7, 12, 6


@pytest.fixture
def placed(rng):
    """Leaves of every document; of a third the second one is another."""
    leaf_NR = rng.integers(0, L, (N, 2))
    leaf_NR[::3, 1] = (leaf_NR[::3, 0] + 1 + leaf_NR[::3, 1] % (L - 1)) % L
    leaf_NR[np.arange(N) % 3 > 0, 1] = leaf_NR[np.arange(N) % 3 > 0, 0]
    return leaf_NR


@pytest.fixture
def rng():
    return np.random.default_rng(5)


@pytest.fixture
def leaf_map(tmp_path, write_map, vectors, placed):
    rows = []
    for document in range(N):
        leaves = list(dict.fromkeys(placed[document].tolist()))
        rows += [(document, leaf, rank, leaves) for rank, leaf in enumerate(leaves)]
    rows.sort(key=lambda row: row[1])
    document_X, leaf_X, rank_X, leaves_X = zip(*rows, strict=True)
    schema = schemas.leaf_map(M, "float32")
    names = [f"d{document:02d}" for document in document_X]
    vector_XM = columns.vector_column(vectors[list(document_X)], pa.float32())
    table = pa.table(
        [names, leaf_X, rank_X, leaves_X, np.zeros(len(rows), np.float32), vector_XM, names, names],
        schema=schema,
    )
    write_map(tmp_path, table, L, 3, leaves_per_document=2)
    return LeafMap.open(tmp_path)


def test_floors_are_those_of_the_best_leaf_of_each_of_the_exact_best(leaf_map, vectors, placed):
    query_QM = vectors[:Q] + 0.05
    assert len(leaf_map.manifest.shards) == 3
    leaf_QKR = leaves_of(exact_best(leaf_map, query_QM, K))
    best_QK = np.argsort(-(query_QM @ vectors.T), axis=1)[:, :K]
    assert [[set(pair) for pair in row] for row in leaf_QKR.tolist()] == [
        [set(placed[document].tolist()) for document in row] for row in best_QK
    ]
    router = LearnedIvfRouter(M, L, 1, 0).requires_grad_(requires_grad=False)
    router.begin(torch.from_numpy(vectors[:L]))
    floor_QK = largest_floors(PromisedBeam(router, router, K, 0.0), Encoded.of(query_QM), leaf_QKR)
    density_QL = query_QM @ router.W[0].numpy().T
    density_QL -= np.sort(density_QL, axis=1)[:, ::-1][:, K // 2, None]
    wanted = [[density_QL[q, placed[document]].max() for document in best_QK[q]] for q in range(Q)]
    np.testing.assert_allclose(floor_QK, wanted, atol=1e-4)


def test_fewer_documents_than_results(leaf_map, vectors):
    assert leaves_of(exact_best(leaf_map, vectors[:Q], 3 * N)).shape == (Q, N, 2)


def test_what_is_found_of_an_exact_search():
    exact = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}, "r": {"a": 3.0}}
    found = {"q": {"a": 3.0, "c": 1.0, "d": 0.5}, "r": {}}
    assert share_found(found, exact, 2) == pytest.approx((1 / 2 + 0) / 2)
    assert share_found(found, exact, 3) == pytest.approx((2 / 3 + 0) / 2)


def test_a_promise_is_not_rounded_up():
    promise = Promise(k=100, least=0.9509999, queries=70, measured=0.97, visited=0.0312)
    assert promise.sentence("test") == (
        "search.beam: recall: at least 0.950 of the exact best 100 promised, from 70 dev queries; measured 0.970 on "
        "test; visits 3.1% of the documents"
    )
