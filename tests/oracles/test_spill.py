"""Second leaves against SOAR's loss written as in the paper, one document at a time."""

import numpy as np
import pytest

from rayhier.cluster.kmeans import nearest, spherical_kmeans
from rayhier.model import spill
from rayhier.model.spill import second_leaves

from ..draws import unit

N, M, L, C = 300, 16, 24, 12


@pytest.fixture(scope="module")
def found():
    vectors = unit(np.random.default_rng(0), N, M)
    centroids = spherical_kmeans(vectors, L, seed=0)
    return vectors, centroids, nearest(vectors, centroids, C)[0]


def loss(x, first, other):
    """Theorem 3.1 with the loss's weight λ: |r'|² + λ |proj_r r'|²."""
    r, r_other = x - first, x - other
    projected = (r_other @ r) / (r @ r) * r
    return r_other @ r_other + spill.WEIGHT * (projected @ projected)


def test_soar_takes_the_least_loss(found, monkeypatch):
    vectors, centroids, leaves = found
    monkeypatch.setattr(spill, "VECTORS", 70)
    places = second_leaves(vectors, leaves, centroids)
    assert len(places) == N
    for x, own, place in zip(vectors, leaves, places, strict=True):
        losses = [loss(x, centroids[own[0]], centroids[leaf]) for leaf in own[1:]]
        assert losses[place - 1] == pytest.approx(min(losses), rel=1e-5)
    for length in (0.5, 6.0):
        assert second_leaves(length * vectors, leaves, centroids).tolist() == places.tolist()
    assert (places > 1).any(), "the nearest other leaf was always the best: nothing was tested"


def test_a_document_on_its_centroid_has_no_residual_to_avoid():
    centroids = np.eye(4, dtype=np.float32)[:3]
    assert second_leaves(centroids[:1], np.array([[0, 2, 1]]), centroids).tolist() == [1]
