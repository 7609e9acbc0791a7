"""Spherical k-means with faiss, flat or down a tree. An empty cluster takes half of the largest one."""

from typing import Any

import numpy as np
import numpy.typing as npt

from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss

ITERATIONS = 25
"""Number of iterations of k-means."""
FLAT = 2_000_000_000
"""Largest product of the number of vectors and that of clusters for which k-means takes one step. Larger problems take
two. Such a k-means takes ten minutes on two cores at 384 dimensions."""
SAMPLE_A_CLUSTER = 256
"""Most vectors for each cluster from which k-means learns centroids: with k clusters, of more than 256 k vectors only a
random sample. faiss has the same limit."""
CAST_ROWS = 65_536
"""Number of vectors that are converted to float32 at a time."""


def spherical_kmeans(
    vectors_NM: Floats, k: int, seed: int, iterations: int = ITERATIONS, rows: Ints | None = None
) -> Floats:
    """Cluster unit vectors [n, m] in float32 or float16, or only its `rows`. Returns unit centroids [k, m].

    ValueError if k exceeds n.

    Large problems (FLAT) are solved in two steps: about √k clusters first, then each of these is cut into a number of
    clusters in proportion to its vectors, so that the work grows with n √k.
    """
    n = len(vectors_NM) if rows is None else len(rows)
    if k > n:
        raise ValueError(f"k: got {k} clusters of {n} vectors; allowed: at most one cluster a vector")
    if min(n, SAMPLE_A_CLUSTER * k) * k > FLAT:
        return _in_two_steps(vectors_NM, np.arange(n) if rows is None else rows, k, seed, iterations)
    return _flat(vectors_NM if rows is None else vectors_NM[rows], k, seed, iterations)


def hierarchical_kmeans(vectors_NM: Floats, branching: int, height: int, seed: int) -> list[Floats]:
    """Cluster unit vectors [n, m] into `branching` children, each child again, and so on for `height` levels.

    Returns for each level unit centroids [nodes, branching, m] of its nodes' children. A node with fewer documents than
    `branching` has fewer children, and zeros for the others.
    """
    node_N = np.zeros(len(vectors_NM), dtype=np.int64)
    levels = []
    for level in range(height):
        below = np.zeros((branching**level, branching, vectors_NM.shape[1]), dtype=np.float32)
        child_N = np.zeros_like(node_N)
        for node in np.unique(node_N):
            rows = np.flatnonzero(node_N == node)
            split_KM = spherical_kmeans(vectors_NM[rows], min(branching, len(rows)), seed)
            child_N[rows] = nearest(vectors_NM[rows], split_KM, 1)[0][:, 0]
            below[node, : len(split_KM)] = split_KM
        levels.append(below)
        node_N = node_N * branching + child_N
    return levels


def refined(vectors_NM: Floats, centroid_KM: Floats, rounds: int) -> Floats:
    """Improve unit centroids [k, m] by `rounds` iterations of k-means over unit vectors [n, m]. Returns [k, m]."""
    return _flat(vectors_NM, len(centroid_KM), 0, rounds, centroid_KM) if rounds else centroid_KM


def nearest(vectors_NM: Floats, centroids_KM: Floats, count: int) -> tuple[np.ndarray, Floats]:
    """Find the `count` centroids of greatest inner product with each of n vectors, greatest first.

    Returns their numbers [n, count] and the inner products [n, count].
    """
    scores, numbers = quantizer(centroids_KM).search(vectors_NM, count)
    return numbers, scores


def quantizer(centroids_KM: Floats) -> Any:
    """Make faiss's index of centroids, for callers that search the index often."""
    index = faiss.IndexFlatIP(centroids_KM.shape[1])
    index.add(centroids_KM)
    return index


def leaf_means(vectors_NM: Floats, leaf_N: Ints, leaves: int) -> Floats:
    """Compute the mean, made a unit vector, of the vectors in each leaf: [leaves, m]; zeros for an empty leaf."""
    sum_LM = np.zeros((leaves, vectors_NM.shape[1]), dtype=np.float64)
    np.add.at(sum_LM, leaf_N, vectors_NM)
    length_L1 = np.linalg.norm(sum_LM, axis=1, keepdims=True)
    return np.asarray(sum_LM / np.maximum(length_L1, 1e-12), dtype=np.float32)


def _flat(vectors_NM: Floats, k: int, seed: int, iterations: int, start_KM: Floats | None = None) -> Floats:
    kmeans = faiss.Kmeans(
        vectors_NM.shape[1], k, niter=iterations, spherical=True, seed=seed, min_points_per_centroid=1
    )
    kmeans.train(np.ascontiguousarray(vectors_NM, dtype=np.float32), init_centroids=start_KM)
    return np.asarray(kmeans.centroids, dtype=np.float32)


def _in_two_steps(vectors_NM: Floats, row_N: Ints, k: int, seed: int, iterations: int) -> Floats:
    _, cell_N = fit(vectors_NM, row_N, coarse := round(k**0.5), seed, iterations)
    rows = [row_N[positions] for positions in members(cell_N, coarse)]
    shares = divide(np.array([len(cell_rows) for cell_rows in rows]), k)
    fine = [
        _flat(vectors_NM[cell_rows], share, seed, iterations)
        for cell_rows, share in zip(rows, shares.tolist(), strict=True)
        if share
    ]
    return np.concatenate(fine)


def fit(vectors_NM: Floats, row_N: Ints, k: int, seed: int, iterations: int = ITERATIONS) -> tuple[Floats, Ints]:
    """Cluster the rows `row_N` [n] of vectors. Returns unit centroids [k, m] and the number [n] of each row's nearest.

    Centroids are learned from a sample of at most SAMPLE_A_CLUSTER rows for each cluster, copied to memory. The
    nearest centroids are then found for all rows, CAST_ROWS at a time.
    """
    n = len(row_N)
    sample = np.sort(np.random.default_rng([seed, 4]).permutation(n)[: SAMPLE_A_CLUSTER * k])
    centroid_KM = _flat(vectors_NM[row_N[sample]], k, seed, iterations)
    batches = (vectors_NM[part].astype(np.float32) for part in np.array_split(row_N, -(-n // CAST_ROWS)))
    return centroid_KM, np.concatenate([nearest(batch, centroid_KM, 1)[0][:, 0] for batch in batches])


def members(own_N: Ints, k: int) -> list[Ints]:
    """List the rows of each of `k` groups, ascending; `own_N` is the number [n] of each row's group.

    >>> members(np.array([2, 0, 2]), 3)
    [array([1]), array([], dtype=int64), array([0, 2])]
    """
    return np.split(np.argsort(own_N, kind="stable"), np.cumsum(np.bincount(own_N, minlength=k))[:-1])


def divide(sizes: npt.NDArray[np.int64], k: int) -> npt.NDArray[np.int64]:
    """Divide `k` in proportion to sizes, by largest remainders: shares sum to `k`, and none exceeds its size.

    >>> divide(np.array([10, 1, 0, 5]), 8)
    array([5, 1, 0, 2])
    """
    exact = k * sizes / sizes.sum()
    shares: npt.NDArray[np.int64] = np.minimum(exact.astype(np.int64), sizes)
    while (missing := k - int(shares.sum())) > 0:
        wanting = np.where(shares < sizes, exact - shares, -np.inf)
        best = np.argsort(-wanting, kind="stable")[: min(missing, int((shares < sizes).sum()))]
        shares[best] += 1
    return shares
