"""Leaves as a tree: which of them become siblings, so that every inner node has just `branching` children (ours).

Leaves stay what one flat k-means made them, whatever the height; the tree above only saves routing. From below: cluster
the centroids into as many groups as there are nodes one level up, each of the same size, then the groups, to the root.
"""

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import spherical_kmeans


def siblings(centroid_LM: Floats, branching: int, height: int, seed: int) -> Ints:
    """An order [L] of the B^H leaves in which the children of every node stand together."""
    order = np.arange(len(centroid_LM), dtype=np.int64).reshape(-1, 1)
    node_KM = centroid_LM
    for _ in range(height - 1):
        group_K = even_groups(node_KM, len(node_KM) // branching, seed)
        together = np.argsort(group_K, kind="stable")
        order = order[together].reshape(len(node_KM) // branching, -1)
        mean_KM = node_KM[together].reshape(len(order), branching, -1).mean(axis=1)
        node_KM = mean_KM / np.maximum(np.linalg.norm(mean_KM, axis=1, keepdims=True), 1e-12)
    return np.asarray(order.reshape(-1))


def even_groups(vector_NM: Floats, groups: int, seed: int) -> Ints:
    """A group [n] for each vector, n / groups in each: k-means, then deferred acceptance (Gale and Shapley).

    Each vector asks the groups nearest first; a full group keeps the nearest of those that ask.
    """
    n = len(vector_NM)
    if n % groups:
        raise ValueError(f"{n} vectors do not divide into {groups} even groups")
    room = n // groups
    score_NG = vector_NM @ spherical_kmeans(vector_NM, groups, seed).T
    wish_NG = np.argsort(-score_NG, axis=1, kind="stable")
    asked_N, group_N = np.zeros(n, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    while (free := np.flatnonzero(group_N < 0)).size:
        group_N[free] = wish_NG[free, asked_N[free]]
        asked_N[free] += 1
        # Nearest first within each group; who stands beyond the room is free again.
        order = np.lexsort((-score_NG[np.arange(n), group_N], group_N))
        begin = np.searchsorted(group_N[order], np.arange(groups))
        place = np.arange(n) - begin[group_N[order]]
        group_N[order[place >= room]] = -1
    return group_N
