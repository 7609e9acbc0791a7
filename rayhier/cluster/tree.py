"""Hierarchical spherical k-means, top down: every document's path through a tree of equal branching."""

import numpy as np
import numpy.typing as npt

from rayhier.cluster.kmeans import nearest, spherical_kmeans
from rayhier.storage.columns import Floats


def hierarchical_kmeans(
    vectors_NM: Floats, branching: int, height: int, seed: int
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Paths [n, height], the root's child first, and the unit centroids [branching, m] of the first level.

    Each node's documents are clustered into `branching` children, fewer where it holds fewer documents.
    """
    centroids = spherical_kmeans(vectors_NM, branching, seed)
    path_NH = np.zeros((len(vectors_NM), height), dtype=np.int64)
    path_NH[:, 0] = nearest(vectors_NM, centroids, 1)[0][:, 0]
    node_N = path_NH[:, 0].copy()
    for level in range(1, height):
        for node in np.unique(node_N):
            rows = np.flatnonzero(node_N == node)
            below = spherical_kmeans(vectors_NM[rows], min(branching, len(rows)), seed)
            path_NH[rows, level] = nearest(vectors_NM[rows], below, 1)[0][:, 0]
        node_N = node_N * branching + path_NH[:, level]
    return path_NH, centroids
