"""A head that starts whitened: differences between documents and their pseudo-queries are alike in all directions."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.dataset.spans import Spans
from rayhier.model.encoder import ResidualHead
from rayhier.spec.train import HceTraining
from rayhier.train.hce import whiten as module
from rayhier.train.hce.whiten import begin, covariance, whitening
from rayhier.train.tower import HeadTower

N, M = 400, 6


@pytest.fixture
def drawn():
    """Pseudo-queries that differ from their documents much in the first direction, little in the last."""
    rng = np.random.default_rng(0)
    documents = rng.normal(size=(N, M)).astype(np.float32)
    row_P = np.sort(rng.integers(0, N, 3 * N))
    noise = rng.normal(size=(len(row_P), M)) * np.linspace(2, 0.1, M)
    texts = pa.chunked_array([pa.array([""] * len(row_P))])
    return documents, Spans((documents[row_P] + noise).astype(np.float32), row_P, texts)


def tower(documents):
    sides = dict.fromkeys(("query", "document", "dev", "pseudo"), documents)
    return HeadTower(ResidualHead(M), sides, torch.device("cpu"))


def test_the_covariance_is_of_all_differences_however_many_at_a_time(drawn, monkeypatch):
    documents, spans = drawn
    difference = spans.vector_PM - documents[spans.row_P]
    wanted = difference.T @ difference / len(difference)
    np.testing.assert_allclose(covariance(documents, spans), wanted, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(module, "ROWS", 7)
    np.testing.assert_allclose(covariance(documents, spans), wanted, rtol=1e-4, atol=1e-5)


def test_without_shrinkage_differences_become_alike_in_all_directions(drawn):
    matrix = whitening(covariance(*drawn), 0.0)
    white = matrix @ covariance(*drawn) @ matrix.T
    np.testing.assert_allclose(white, white[0, 0] * np.eye(M), atol=1e-4 * white[0, 0])
    assert np.diag(matrix).mean() == pytest.approx(1)


def test_much_shrinkage_changes_nothing(drawn):
    np.testing.assert_allclose(whitening(covariance(*drawn), 1e6), np.eye(M), atol=1e-3)


def test_a_direction_without_differences_does_not_become_infinite():
    matrix = whitening(np.diag([1.0, 0.0, -1e-12]), 0.1)
    assert np.isfinite(matrix).all()
    assert matrix[1, 1] > matrix[0, 0]


@pytest.mark.parametrize(
    ("start", "spans", "moved"), [("auto", True, True), ("auto", False, False), ("base", True, False)]
)
def test_when_a_head_starts_whitened(drawn, start, spans, moved):
    documents, own = drawn
    made = tower(documents)
    begin(made, HceTraining(type="hce", start=start), documents, own if spans else None)
    assert bool(made.module.weight.any()) == moved
    if moved:
        wanted = torch.from_numpy(whitening(covariance(documents, own), module.SHRINKAGE))
        torch.testing.assert_close(made.module.weight + torch.eye(M), wanted)
