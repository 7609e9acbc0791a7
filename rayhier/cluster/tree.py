"""Hierarchical spherical k-means, top down: a tree of equal branching over documents."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rayhier.arrays import Floats
from rayhier.cluster.kmeans import nearest, spherical_kmeans


@dataclass(frozen=True)
class Tree:
    """Clusters of a hierarchical k-means, level by level."""

    path_NH: npt.NDArray[np.int64]
    """Path [n, height] of each document: the number of the child taken at each level, from the root."""
    centroids: list[Floats]
    """Unit centroids of each level [nodes, branching, m]; a node's missing children are all zero."""


def hierarchical_kmeans(vectors_NM: Floats, branching: int, height: int, seed: int) -> Tree:
    """Cluster each node's documents into `branching` children, fewer where it holds fewer documents."""
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
