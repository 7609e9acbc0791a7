"""Build a tree over leaves: choose siblings so that every inner node has exactly `branching` children (our method).

One k-means over all documents makes the leaves, whatever the tree's height; the tree only saves work in routing. It is
built from the leaves up: the centroids of a level are put into groups of equal size, the nodes of the level above.
"""

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import spherical_kmeans


def siblings(centroid_LM: Floats, branching: int, height: int, seed: int) -> Ints:
    """Order the L = branching^height leaves, by their centroids, so that a node's children are in sequence: [L]."""
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
    """Put n vectors [n, m] into groups of n / groups each, near ones together; returns the group [n] of each vector.

    Centres of groups come from k-means; then vectors apply to groups, nearest first, and a full group keeps the nearest
    of the vectors that applied (deferred acceptance, Gale and Shapley). ValueError where `groups` does not divide n.
    """
    n = len(vector_NM)
    if n % groups:
        raise ValueError(f"{n} vectors do not divide into {groups} even groups")
    room = n // groups
    score_NG = vector_NM @ spherical_kmeans(vector_NM, groups, seed).T
    wish_NG = np.argsort(-score_NG, axis=1, kind="stable")
    applied_N, group_N = np.zeros(n, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    while (free := np.flatnonzero(group_N < 0)).size:
        group_N[free] = wish_NG[free, applied_N[free]]
        applied_N[free] += 1
        # Nearest first within each group; vectors beyond its room are free again.
        order = np.lexsort((-score_NG[np.arange(n), group_N], group_N))
        begin = np.searchsorted(group_N[order], np.arange(groups))
        place = np.arange(n) - begin[group_N[order]]
        group_N[order[place >= room]] = -1
    return group_N
