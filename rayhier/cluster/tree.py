"""Hierarchical spherical k-means, from the root down: a tree over documents, of the same branching everywhere."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rayhier.arrays import Floats
from rayhier.cluster.kmeans import nearest, spherical_kmeans


@dataclass(frozen=True)
class Tree:
    path_NH: npt.NDArray[np.int64]
    """Path [n, height] of each document from the root: the number of the child taken at each level."""
    centroids: list[Floats]
    """Unit centroids [nodes, branching, m] of the children of each level's nodes; missing children are zeros."""


def hierarchical_kmeans(vectors_NM: Floats, branching: int, height: int, seed: int) -> Tree:
    """Cluster unit vectors [n, m] into `branching` children, each child again, and so on for `height` levels.

    A node with fewer documents than `branching` has fewer children.
    """
    n, m = vectors_NM.shape
    path_NH = np.zeros((n, height), dtype=np.int64)
    node_N = np.zeros(n, dtype=np.int64)
    centroids = []
    for level in range(height):
        below = np.zeros((branching**level, branching, m), dtype=np.float32)
        for node in np.unique(node_N):
            rows = np.flatnonzero(node_N == node)
            split_KM = spherical_kmeans(vectors_NM[rows], min(branching, len(rows)), seed)
            path_NH[rows, level] = nearest(vectors_NM[rows], split_KM, 1)[0][:, 0]
            below[node, : len(split_KM)] = split_KM
        centroids.append(below)
        node_N = node_N * branching + path_NH[:, level]
    return Tree(path_NH, centroids)
