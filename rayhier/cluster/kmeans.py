"""Spherical k-means, faiss's: unit centroids, empty clusters repaired by splitting the largest."""

import numpy as np

from rayhier.cluster.library import faiss
from rayhier.storage.columns import Floats

ITERATIONS = 25


def spherical_kmeans(vectors_NM: Floats, k: int, seed: int, iterations: int = ITERATIONS) -> Floats:
    """Unit centroids [k, m] of unit vectors [n, m]; ValueError where k exceeds n."""
    n, m = vectors_NM.shape
    if k > n:
        raise ValueError(f"{k} clusters of {n} vectors; allowed: at most as many as vectors")
    kmeans = faiss.Kmeans(m, k, niter=iterations, spherical=True, seed=seed, min_points_per_centroid=1)
    kmeans.train(np.ascontiguousarray(vectors_NM, dtype=np.float32))
    return np.asarray(kmeans.centroids, dtype=np.float32)


def nearest(vectors_NM: Floats, centroids_KM: Floats, count: int) -> tuple[np.ndarray, Floats]:
    """Indices [n, count] and inner products [n, count] of the nearest centroids, best first."""
    index = faiss.IndexFlatIP(centroids_KM.shape[1])
    index.add(centroids_KM)
    scores, found = index.search(vectors_NM, count)
    return found, scores
