"""Rows of several files: products with their stored vectors, and results whose scores are tied."""

import numpy as np
import pytest

from rayhier.search import native
from rayhier.search.segment.leaf_scan import LeafScan

from .maps import leaf_map_of_rows, leaf_rows

N, M, LEAVES, Q, K = 60, 8, 6, 5, 10


@pytest.fixture
def world(unit, tmp_path, write_map, passages):
    """Sixty documents in six leaves and two files, every third in two leaves. Six documents have each vector."""
    rng = np.random.default_rng(0)
    vector_NM = unit(rng, N // 6, M).astype(np.float16).astype(np.float32)[rng.permutation(N) % (N // 6)]
    leaf_N = rng.integers(LEAVES, size=N)
    leaves = [[int(leaf), int(leaf + 1) % LEAVES][: 2 if n % 3 == 0 else 1] for n, leaf in enumerate(leaf_N)]
    ids = [f"d{n:02d}" for n in rng.permutation(N)]
    own = {"parent": [f"p{name[1]}{int(name[2]) // 2}" for name in ids]} if passages else {}
    table = leaf_rows(leaves, vector_NM, doc_id=ids, text=ids, **own)
    leaf_map = leaf_map_of_rows(tmp_path / "map", write_map, table, LEAVES)
    return LeafScan.mapped(leaf_map), vector_NM, own.get("parent", ids)


@pytest.mark.parametrize("form", ["numpy", "native"])
def test_products_are_those_of_the_stored_vectors(world, unit, monkeypatch, form):
    if form == "numpy":
        monkeypatch.setattr(native, "extension", lambda: None)
    rows, rng = world[0].rows, np.random.default_rng(3)
    stored = np.concatenate([segment.stored for segment in world[0].segments]).astype(np.float32)
    query_QM, row_QT = unit(rng, Q, M), np.array([rng.permutation(rows.count)[:30] for _ in range(Q)])
    row_QT[rng.random(row_QT.shape) < 0.2] = -1
    row_QT[0] = -1  # nothing was found for it
    expected_QT = np.where(row_QT < 0, -np.inf, np.einsum("qm,qtm->qt", query_QM, stored[row_QT]))
    np.testing.assert_allclose(world[0].products(query_QM, row_QT), expected_QT, atol=1e-5)


@pytest.mark.parametrize("k", [1, 3, K])
def test_results_with_the_same_score_are_in_the_order_of_their_ids(world, unit, k):
    scan, vector_NM, names = world
    query_QM = unit(np.random.default_rng(4), Q, M)
    found = scan.scan(query_QM, np.tile(np.arange(LEAVES), (Q, 1)), k)
    for query, row_K in enumerate(found.row_QK):
        score_N, best = (vector_NM @ query_QM[query]).round(5), {}
        for name, score in zip(names, score_N.tolist(), strict=True):
            best[name] = max(score, best.get(name, -9))
        assert found.ids[row_K].tolist() == sorted(best, key=lambda name: (-best[name], name))[:k]
