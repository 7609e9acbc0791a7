"""Spherical k-means of any number of vectors into any number of clusters, with the cluster of each vector.

Many clusters are found in two steps: coarse cells first, then each cell is cut into its share of the clusters. A vector
is compared with the centroids of its own cell alone, so the work grows with n √k, and so does finding its cluster.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rayhier.arrays import Bools, Floats, Ints
from rayhier.cluster.kmeans import SAMPLE_A_CLUSTER, divide, fit, members

FLAT = 200_000_000
"""Largest vectors x clusters for one flat k-means: about a minute on two cores at 384 dimensions."""
NO_LENGTH = 1e-6
"""Length below which a mean has no direction."""


@dataclass(frozen=True)
class Clusters:
    """Unit centroids [k, m], and the cluster [n] of each vector."""

    centroid_KM: Floats
    own_N: Ints

    def cosine(self, vectors_NM: Floats) -> float:
        """Mean cosine of the unit vectors [n, m] to the centroids of their own clusters."""
        return mean_cosine(vectors_NM, self.centroid_KM, self.own_N)


def cluster(vectors_NM: Floats, k: int, seed: int) -> Clusters:
    """Cluster unit vectors [n, m] in float32 or float16; `k` is at most n.

    A vector belongs to the nearest centroid of its cell, or, where a cluster was repaired, to the nearer half of the
    cluster that was cut in two. No cluster is empty unless there are fewer distinct vectors than clusters.
    """
    if k > len(vectors_NM):
        raise ValueError(f"k: got {k} clusters of {len(vectors_NM)} vectors; allowed: at most one cluster a vector")
    centroid_KM = np.empty((k, vectors_NM.shape[1]), dtype=np.float32)
    own_N = np.empty(len(vectors_NM), dtype=np.int64)
    first = 0
    for row_R, share in _cells(vectors_NM, np.arange(len(vectors_NM)), k, seed):
        centroid_KM[first : first + share], own_R = fit(vectors_NM, row_R, share, seed)
        own_N[row_R] = first + own_R
        first += share
    rows = members(own_N, k)
    _fill_empty(vectors_NM, centroid_KM, rows, seed)
    for number, row_R in enumerate(rows):
        own_N[row_R] = number
    _give_length(vectors_NM, centroid_KM, rows)
    return Clusters(centroid_KM, own_N)


def mean_cosine(vectors_NM: Floats, centroid_KM: Floats, own_N: Ints) -> float:
    """Mean inner product of vectors [n, m] with the centroids of their own clusters [n], some at a time."""
    parts = np.array_split(np.arange(len(vectors_NM)), -(-len(vectors_NM) // 65_536))
    sums = [np.einsum("nm,nm->", vectors_NM[rows], centroid_KM[own_N[rows]], dtype=np.float64) for rows in parts]
    return float(sum(sums) / len(vectors_NM))


def shares(sizes: Ints, k: int) -> Ints:
    """Divide `k` clusters among cells: one each, the others in proportion to sizes; none gets more than its size.

    >>> shares(np.array([10, 1, 5]), 8)
    array([5, 1, 2])
    """
    others = sizes - 1
    return 1 + (divide(others, k - len(sizes)) if others.any() else others)


def _cells(vectors_NM: Floats, row_N: Ints, k: int, seed: int) -> Iterator[tuple[Ints, int]]:
    """Rows and number of clusters of each cell; a cell that is still large is cut again."""
    if k == 1 or min(len(row_N), SAMPLE_A_CLUSTER * k) * k <= FLAT:
        yield row_N, k
        return
    coarse = max(2, round(k**0.5))
    cell_N = fit(vectors_NM, row_N, coarse, seed)[1]
    cells = [row_N[own] for own in members(cell_N, coarse) if len(own)]
    if len(cells) == 1:  # too alike to tell apart
        cells = np.array_split(row_N, coarse)
    for own, share in zip(cells, shares(np.array([len(own) for own in cells]), k).tolist(), strict=True):
        yield from _cells(vectors_NM, own, share, seed)


def _fill_empty(vectors_NM: Floats, centroid_KM: Floats, rows: list[Ints], seed: int) -> None:
    """Cut the largest cluster that has two distinct vectors in two for each empty one, in place."""
    empty = [number for number, own in enumerate(rows) if not len(own)]
    largest = [(-len(own), number) for number, own in enumerate(rows) if len(own) > 1] if empty else []
    heapq.heapify(largest)
    while empty and largest:
        number = heapq.heappop(largest)[1]
        own_R = rows[number]
        first_R = _first_half(vectors_NM[own_R], seed)
        if first_R is None:
            continue
        for half, half_R in ((number, own_R[first_R]), (empty.pop(), own_R[~first_R])):
            rows[half] = half_R
            centroid_KM[half] = vectors_NM[half_R].mean(axis=0, dtype=np.float64)
            heapq.heappush(largest, (-len(half_R), half))


def _first_half(vectors_NM: Floats, seed: int) -> Bools | None:
    """Whether each vector [n, m] lies in the first of two clusters, neither empty; None where all are the same."""
    other_N: Bools = (vectors_NM != vectors_NM[0]).any(axis=1)
    if not other_N.any():
        return None
    first_N: Bools = fit(vectors_NM, np.arange(len(vectors_NM)), 2, seed)[1] == 0
    return ~other_N if first_N.all() or not first_N.any() else first_N


def _give_length(vectors_NM: Floats, centroid_KM: Floats, rows: list[Ints]) -> None:
    """Give every centroid length 1, in place; one that has no direction becomes a vector of its cluster."""
    for number in np.flatnonzero(np.linalg.norm(centroid_KM, axis=1) < NO_LENGTH).tolist():
        centroid_KM[number] = vectors_NM[rows[number][0] if len(rows[number]) else 0]
    centroid_KM /= np.maximum(np.linalg.norm(centroid_KM, axis=1, keepdims=True), NO_LENGTH)
