"""Spherical k-means at its edges; its objective is in tests/oracles/test_kmeans.py."""

import numpy as np
import pytest

from rayhier.cluster import kmeans
from rayhier.cluster.kmeans import spherical_kmeans

N, M = 200, 8


def test_more_clusters_than_vectors_are_refused(vectors):
    with pytest.raises(ValueError, match="k: got 11 clusters of 10 vectors; allowed: at most one cluster per vector"):
        spherical_kmeans(vectors[:10], 11, seed=0)


def test_fewer_distinct_vectors_than_clusters(vectors):
    centroids = spherical_kmeans(np.repeat(vectors[:3], 20, axis=0), 6, seed=0)
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-5)
    assert (vectors[:3] @ centroids.T).max(axis=1).min() > 0.99


def test_one_step_is_done_by_one_worker_for_all(vectors):
    centroids = spherical_kmeans(vectors, 5, seed=0, each=lambda _, items: [vectors[:5] for _ in items])
    assert np.array_equal(centroids, vectors[:5])


@pytest.mark.parametrize("at_once", [7])
def test_two_steps_read_vectors_of_16_bits_in_batches(vectors, monkeypatch, at_once):
    monkeypatch.setattr(kmeans, "FLAT", 0)
    half = vectors.astype(np.float16)
    whole = spherical_kmeans(half.astype(np.float32), 20, seed=0)
    monkeypatch.setattr(kmeans, "CAST_ROWS", at_once)
    np.testing.assert_array_equal(spherical_kmeans(half, 20, seed=0), whole)
    flat = spherical_kmeans(vectors, 20, seed=0)
    assert (vectors @ whole.T).max(axis=1).mean() > (vectors @ flat.T).max(axis=1).mean() - 0.05
