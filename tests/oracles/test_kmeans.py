"""Spherical k-means against faiss from our centroids and against plain Lloyd iterations."""

import faiss
import numpy as np
import pytest

from rayhier.cluster.kmeans import spherical_kmeans

N, M, K = 3000, 16, 30


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(80, M))
    return unit(centers[rng.integers(0, 80, N)] + 0.6 * rng.normal(size=(N, M))).astype(np.float32)


def objective(vectors, centroids):
    """Mean cosine to the nearest centroid, whatever the centroids' lengths."""
    return float((vectors @ unit(centroids).T).max(axis=1).mean())


def lloyd(vectors, centroids, iterations):
    for _ in range(iterations):
        own = (vectors @ centroids.T).argmax(axis=1)
        centroids = unit(
            np.stack([vectors[own == k].sum(axis=0) if (own == k).any() else centroids[k] for k in range(K)])
        )
    return centroids


def test_not_worse_than_plain_lloyd_from_random_starts(vectors):
    starts = [vectors[np.random.default_rng(seed).choice(N, K, replace=False)] for seed in range(5)]
    plain = np.mean([objective(vectors, lloyd(vectors, start, 25)) for start in starts])
    ours = np.mean([objective(vectors, spherical_kmeans(vectors, K, seed)) for seed in range(5)])
    assert ours > plain - 0.005


def test_faiss_finds_little_to_improve(vectors):
    ours = spherical_kmeans(vectors, K, seed=1)
    kmeans = faiss.Kmeans(M, K, niter=10, spherical=True)
    kmeans.train(vectors, init_centroids=ours)
    assert objective(vectors, ours) >= objective(vectors, kmeans.centroids) - 0.003


def test_the_objective_never_falls_from_one_iteration_to_the_next(vectors):
    found = [objective(vectors, spherical_kmeans(vectors, K, 2, iterations)) for iterations in (1, 2, 4, 8, 16, 25)]
    assert found == sorted(found)
    assert found[-1] > found[0] + 0.01


def test_one_iteration_more_is_one_lloyd_step(vectors):
    before, after = (spherical_kmeans(vectors, K, 3, iterations) for iterations in (4, 5))
    np.testing.assert_allclose(after, lloyd(vectors, before, 1), atol=1e-5)
