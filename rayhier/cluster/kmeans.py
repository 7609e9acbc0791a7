"""Spherical k-means, flat or down a tree, by faiss or torch. An empty cluster takes half of the largest cluster."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.cluster.neighbours import Neighbours, faiss_on_gpu, nearest
from rayhier.model.device import gpu

ITERATIONS = 25
FLAT, GPU_FLAT = 2_000_000_000, 20_000_000_000
"""Largest number of vectors times clusters for which k-means takes one step, on a CPU and on a GPU. Larger problems
take two steps. On two cores, a problem of size FLAT takes ten minutes at 384 dimensions."""
SAMPLE_A_CLUSTER = 256
"""k-means learns k centroids from a random sample of at most 256 k vectors. faiss has the same limit."""
CAST_ROWS = 65_536
"""Number of vectors that are converted to float32 at a time."""
ASSIGNED = 1 << 28
Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""Function that applies a function to each item: `map`, or `WorkerGroup.each` to use several workers."""


def spherical_kmeans(
    vectors_NM: Floats, k: int, seed: int, iterations: int = ITERATIONS, rows: Ints | None = None, each: Each = map
) -> Floats:
    """Cluster unit vectors [n, m], float32 or float16, or only the given `rows`. Returns unit centroids [k, m].

    ValueError if k exceeds n. A large problem (FLAT) takes two steps: about √k cells, then clusters within each cell.
    So the work grows with n √k. `each` computes the steps.
    """
    n = len(vectors_NM) if rows is None else len(rows)
    if k > n:
        raise ValueError(f"k: got {k} clusters of {n} vectors; allowed: at most one cluster per vector")
    if min(n, SAMPLE_A_CLUSTER * k) * k > (FLAT if gpu() is None else GPU_FLAT):
        return _in_two_steps(vectors_NM, np.arange(n) if rows is None else rows, k, seed, iterations, each)
    if n > SAMPLE_A_CLUSTER * k and vectors_NM.dtype != np.float32:  # faiss would first copy all to float32
        rows = _sample(np.arange(n) if rows is None else rows, k, seed)
    (flat,) = each(lambda own: _flat(vectors_NM if own is None else vectors_NM[own], k, seed, iterations), [rows])
    return np.asarray(flat)


def hierarchical_kmeans(vectors_NM: Floats, branching: int, height: int, seed: int) -> list[Floats]:
    """Cluster unit vectors [n, m] into `branching` children, cluster each child in the same way, for `height` levels.

    Returns for each level the unit centroids [nodes, branching, m] of its nodes' children. A node with fewer documents
    than `branching` has fewer children, and zeros for missing children.
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


def leaf_means(vectors_NM: Floats, leaf_N: Ints, leaves: int) -> Floats:
    """Compute the mean of the vectors in each leaf, scaled to a unit vector: [leaves, m]. An empty leaf has zeros."""
    sum_LM = np.zeros((leaves, vectors_NM.shape[1]), dtype=np.float64)
    for begin in range(0, len(leaf_N), CAST_ROWS):
        part_N = leaf_N[begin : begin + CAST_ROWS]
        in_leaf_LN = csr_array((np.ones(len(part_N)), (part_N, np.arange(len(part_N)))), (leaves, len(part_N)))
        sum_LM += in_leaf_LN @ vectors_NM[begin : begin + CAST_ROWS].astype(np.float64)
    length_L1 = np.linalg.norm(sum_LM, axis=1, keepdims=True)
    return np.asarray(sum_LM / np.maximum(length_L1, 1e-12), dtype=np.float32)


def _flat(vectors_NM: Floats, k: int, seed: int, iterations: int, start_KM: Floats | None = None) -> Floats:
    vectors_NM, on_gpu = np.ascontiguousarray(vectors_NM, dtype=np.float32), faiss_on_gpu()
    if (device := gpu()) is not None and not on_gpu:
        return lloyd(vectors_NM, k, seed, iterations, device, start_KM)
    m = vectors_NM.shape[1]
    kmeans = faiss.Kmeans(m, k, niter=iterations, spherical=True, seed=seed, min_points_per_centroid=1, gpu=on_gpu)
    kmeans.train(vectors_NM, init_centroids=start_KM)
    return np.asarray(kmeans.centroids, dtype=np.float32)


def lloyd(
    vectors_NM: Floats, k: int, seed: int, iterations: int, device: str, start_KM: Floats | None = None
) -> Floats:
    """Cluster unit vectors [n, m] by spherical k-means in torch on a device. Returns unit centroids [k, m]."""
    import torch
    from torch.nn.functional import normalize

    x_NM, draw = torch.from_numpy(vectors_NM).to(device), np.random.default_rng(seed)
    if start_KM is None:
        start_KM = vectors_NM[draw.choice(len(vectors_NM), k, replace=False)]
    centroid_KM = torch.from_numpy(start_KM).to(device)
    for _ in range(iterations):
        parts = torch.split(x_NM, max(1, ASSIGNED // k))
        own_N = torch.cat([(part_NM @ centroid_KM.T).argmax(dim=1) for part_NM in parts])
        size_K = torch.bincount(own_N, minlength=k)
        centroid_KM = normalize(torch.zeros_like(centroid_KM).index_add_(0, own_N, x_NM))
        empty_E = (size_K == 0).nonzero()[:, 0]
        if len(empty_E):  # the largest clusters give about half of their vectors
            whole_E = size_K.argsort(descending=True, stable=True)[: len(empty_E)]
            shift_EM = torch.from_numpy(draw.normal(0, 1e-3, (len(whole_E), x_NM.shape[1])).astype(np.float32))
            centroid_KM[empty_E[: len(whole_E)]] = normalize(centroid_KM[whole_E] + shift_EM.to(device))
    return np.asarray(centroid_KM.cpu().numpy())


def _in_two_steps(vectors_NM: Floats, row_N: Ints, k: int, seed: int, iterations: int, each: Each) -> Floats:
    coarse = round(k**0.5)
    (cell_N,) = each(lambda _: fit(vectors_NM, row_N, coarse, seed, iterations)[1], [None])
    rows = [row_N[positions] for positions in members(cell_N, coarse)]
    shares = divide(np.array([len(cell_rows) for cell_rows in rows]), k).tolist()

    def cut(cell: int) -> Floats:
        return _flat(vectors_NM[rows[cell]], shares[cell], seed, iterations)

    return np.concatenate([*each(cut, [cell for cell, share in enumerate(shares) if share])])


def _sample(row_N: Ints, k: int, seed: int) -> Ints:
    return row_N[np.sort(np.random.default_rng([seed, 4]).permutation(len(row_N))[: SAMPLE_A_CLUSTER * k])]


def fit(vectors_NM: Floats, row_N: Ints, k: int, seed: int, iterations: int = ITERATIONS) -> tuple[Floats, Ints]:
    """Cluster the rows `row_N` [n] of vectors. Returns unit centroids [k, m] and each row's nearest centroid [n]."""
    centroid_KM = _flat(vectors_NM[_sample(row_N, k, seed)], k, seed, iterations)
    near, parts = Neighbours(centroid_KM), np.array_split(row_N, -(-len(row_N) // CAST_ROWS))
    return centroid_KM, np.concatenate([near.search(vectors_NM[part], 1)[0][:, 0] for part in parts])


def members(own_N: Ints, k: int) -> list[Ints]:
    """List the rows of each of `k` groups, ascending. `own_N` is the number [n] of each row's group.

    >>> members(np.array([2, 0, 2]), 3)
    [array([1]), array([], dtype=int64), array([0, 2])]
    """
    return np.split(np.argsort(own_N, kind="stable"), np.cumsum(np.bincount(own_N, minlength=k))[:-1])


def divide(sizes: npt.NDArray[np.int64], k: int) -> npt.NDArray[np.int64]:
    """Divide `k` in proportion to sizes, by largest remainders. Shares sum to `k`, and no share exceeds its size.

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
