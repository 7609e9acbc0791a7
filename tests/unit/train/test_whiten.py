"""A head that starts whitened: differences between documents and their pseudo-queries are alike in all directions."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.dataset.spans import Spans
from rayhier.model.encoder import ResidualHead
from rayhier.train import whiten as module
from rayhier.train.dev_measures import DevMeasured
from rayhier.train.tower import HeadTower
from rayhier.train.whiten import covariance, start_whitened, whitening

from .conftest import unit

N, M = 400, 6
NOISE_Q = np.array([-1, 1] * 4 + [0]) * (9 / 8) ** 0.5


@pytest.fixture
def drawn():
    """Pseudo-queries that differ from their documents much in the first direction, little in the last."""
    rng = np.random.default_rng(0)
    documents = rng.normal(size=(N, M)).astype(np.float32)
    row_P = np.sort(rng.integers(0, N, 3 * N))
    noise = rng.normal(size=(len(row_P), M)) * np.linspace(2, 0.1, M)
    texts = pa.chunked_array([pa.array([""] * len(row_P))])
    return documents, Spans((documents[row_P] + noise).astype(np.float32), row_P, texts)


def test_the_covariance_is_of_all_differences_however_many_at_a_time(drawn, monkeypatch):
    documents, spans = drawn
    difference = spans.vector_PM - documents[spans.row_P]
    wanted = difference.T @ difference / len(difference)
    np.testing.assert_allclose(covariance(documents, spans), wanted, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(module, "ROWS", 7)
    np.testing.assert_allclose(covariance(documents, spans), wanted, rtol=1e-4, atol=1e-5)


def test_differences_become_alike_in_all_directions_and_none_infinite(drawn):
    matrix = whitening(covariance(*drawn), 0.0)
    white = matrix @ covariance(*drawn) @ matrix.T
    np.testing.assert_allclose(white, white[0, 0] * np.eye(M), atol=1e-4 * white[0, 0])
    assert np.diag(matrix).mean() == pytest.approx(1)
    matrix = whitening(np.diag([1.0, 0.0, -1e-12]), 0.1)
    assert np.isfinite(matrix).all()
    assert matrix[1, 1] > matrix[0, 0]
    np.testing.assert_array_equal(whitening(np.zeros((3, 3)), 0.1), np.eye(3))


@pytest.mark.parametrize(
    ("spans", "whitened_dev", "moved"),
    [("some", 0.6, True), ("some", 0.25, False), ("none", 0.6, False), ("empty", 0.6, False)],
)
def test_when_a_head_starts_whitened(drawn, spans, whitened_dev, moved):
    """The base encoder measures .5 on dev; the standard error of nine differences is .1."""
    documents, own = drawn
    sides = dict.fromkeys(("query", "document", "dev", "pseudo"), documents)
    made = HeadTower(ResidualHead(M), sides, torch.device("cpu"))
    given = {"some": own, "none": None, "empty": own[np.zeros(len(own), dtype=bool)]}[spans]

    def measure(document_NM, dev_QM):
        assert (document_NM == dev_QM).all()
        untouched = np.allclose(document_NM, unit(documents), atol=1e-6)
        value_Q = np.full(9, 0.5 if untouched else whitened_dev) + (0 if untouched else 0.3 * NOISE_Q)
        return DevMeasured({"nDCG@10": float(value_Q.mean())}, value_Q)

    start_whitened(made, given, measure)
    assert bool(made.module.weight.any()) == moved
    if moved:
        wanted = torch.from_numpy(whitening(covariance(documents, own), module.SHRINKAGE))
        torch.testing.assert_close(made.module.weight + torch.eye(M), wanted)
