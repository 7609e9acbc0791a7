"""Rows are scored again by their stored vectors: a few queries together, in several threads, from several files."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rayhier.cluster.library import faiss
from rayhier.search.segment import rows as module
from rayhier.search.segment.rows import TOGETHER, Rows

SIZES, M = (70, 1, 55), 24


@pytest.fixture(params=[np.float16, np.float32])
def stored(request):
    return [np.random.default_rng(size).normal(size=(size, M)).astype(request.param) for size in SIZES]


@pytest.fixture
def rows(stored):
    segments = [
        SimpleNamespace(count=len(matrix), matrix=torch.from_numpy(matrix), read_ahead=lambda _: None)
        for matrix in stored
    ]
    return Rows(segments)


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(request.param)
    faiss.omp_set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before[0])
    faiss.omp_set_num_threads(before[1])


@pytest.mark.parametrize("queries", [1, 2, TOGETHER, TOGETHER + 1, 4 * TOGETHER + 3, 97])
def test_scores_are_products_of_the_stored_vectors(rows, stored, queries, threads):
    rng, vectors = np.random.default_rng(queries), np.concatenate(stored).astype(np.float32)
    query_QM = rng.normal(size=(queries, M)).astype(np.float32)
    row_QT = np.array([rng.permutation(len(vectors))[:30] for _ in range(queries)])
    row_QT[rng.random(row_QT.shape) < 0.2] = -1
    if queries > 1:
        row_QT[0] = -1  # nothing was found for it
    found = rows.scored(query_QM, row_QT)
    expected_QT = np.where(row_QT < 0, -np.inf, np.einsum("qm,qtm->qt", query_QM, vectors[row_QT]))
    for query, row_T in enumerate(row_QT.tolist()):
        order = np.argsort(-expected_QT[query], kind="stable")
        np.testing.assert_allclose(found.score_QT[query], expected_QT[query][order], atol=1e-5)
        assert sorted(found.row_QT[query].tolist()) == sorted(row_T)
        scores = dict(zip(row_T, expected_QT[query].tolist(), strict=True))
        for row, score in zip(found.row_QT[query].tolist(), found.score_QT[query].tolist(), strict=True):
            assert score == pytest.approx(scores[row], abs=1e-5)


def test_long_lists_are_scored_in_blocks_and_alone_as_in_a_batch(rows, stored, threads, monkeypatch):
    monkeypatch.setattr(module, "KEPT", 50 * M)
    vectors, rng = np.concatenate(stored).astype(np.float32), np.random.default_rng(3)
    query_QM = rng.normal(size=(40, M)).astype(np.float32)
    for listed in (7, 25, 49, 50, 51, 126):
        row_QT = np.array([rng.permutation(len(vectors))[:listed] for _ in query_QM])
        found = rows.scored(query_QM, row_QT)
        best_Q = np.einsum("qm,qtm->qt", query_QM, vectors[row_QT]).max(axis=1)
        np.testing.assert_allclose(found.score_QT[:, 0], best_Q, atol=1e-5)
        for query, row_T in enumerate(row_QT):
            alone = rows.scored(query_QM[query, None], row_T[None])
            np.testing.assert_array_equal(alone.score_QT[0], found.score_QT[query])
            np.testing.assert_array_equal(alone.row_QT[0], found.row_QT[query])
