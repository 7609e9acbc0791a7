"""Grow a tree bottom-up: documents form clusters of about `branching`, clusters form larger clusters, up to a root.

The method is Algorithms 1 and 2 of "Hierarchical Corpus Encoder: Fusing Generative Retrieval and Dense Indices". All
paths from the root to a document are equally long. The number of nodes in a level depends only on `branching` and the
number of documents.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rayhier.arrays import Bools, Floats, Ints
from rayhier.cluster.kmeans import CAST_ROWS, SAMPLE_A_CLUSTER, Each, divide, fit, members
from rayhier.cluster.neighbours import Neighbours
from rayhier.spec.train.hce import node_counts

FLAT = 200_000_000
"""Largest number of vectors times clusters for k-means in one step, which then takes a minute at 384 dimensions."""

PROBES, ROUNDS = 4, 4
"""Number of nearest cells from which a vector chooses its cluster (PROBES), and number of such choices (ROUNDS)."""

NO_LENGTH = 1e-6
"""Length below which a mean of vectors counts as a vector without direction."""


@dataclass(frozen=True)
class DocumentTree:
    """A tree over n documents: level 0 is the root, level L the documents. Fields describe the levels in between."""

    centroids: list[Floats]
    """Unit centroids [nodes, m] of levels 1 to L - 1, top down. The centroid of a node is the mean of its children's
    vectors, with equal weights."""
    parents: list[Ints]
    """Number [nodes] of each node's parent in the level above, for levels 1 to L - 1. 0 is the root."""
    leaf_N: Ints
    """Number [n] of the node of level L - 1 above each document. If that level is the root, the number is 0."""

    def paths(self) -> Ints:
        """Return the nodes [n, L - 1] above each document, one of each level from 1 to L - 1."""
        return above(self.parents, self.leaf_N)


def grow(vectors_NM: Floats, branching: int, seed: int, each: Each = map) -> DocumentTree:
    """Grow the tree of n unit vectors [n, m], float32 or float16. The same seed grows the same tree.

    ValueError if `branching` is below 2 or there are no vectors. A node is empty only if there are fewer distinct
    vectors than nodes. `each` computes the parts of a large level.
    """
    counts = node_counts(len(vectors_NM), branching)
    centroids: list[Floats] = []
    owns: list[Ints] = []
    below_NM = vectors_NM
    for count in reversed(counts):
        below_NM, own_N = cluster(below_NM, count, seed, each)
        centroids.insert(0, below_NM)
        owns.insert(0, own_N)
    *parents, leaf_N = [np.zeros(counts[0] if counts else len(vectors_NM), dtype=np.int64), *owns]
    return DocumentTree(centroids, parents, leaf_N)


def above(parents: Sequence[Ints], leaf_N: Ints) -> Ints:
    """Return the nodes [n, levels] above each document, top down, from the parents of each level and the leaves [n]."""
    path_NT = np.empty((len(leaf_N), len(parents)), dtype=np.int64)
    node_N = leaf_N
    for level in reversed(range(len(parents))):
        path_NT[:, level] = node_N
        node_N = parents[level][node_N]
    return path_NT


def cluster(vectors_NM: Floats, k: int, seed: int, each: Each = map) -> tuple[Floats, Ints]:
    """Cluster n unit vectors [n, m], float32 or float16. Returns unit centroids [k, m] and each vector's cluster [n].

    A vector belongs to the nearest centroid. If k-means takes two steps, only centroids of near cells are compared. An
    empty cluster takes half of another cluster, so it stays empty only if there are fewer distinct vectors than
    clusters.
    """
    centroid_KM = np.empty((k, vectors_NM.shape[1]), dtype=np.float32)
    own_N = np.empty(len(vectors_NM), dtype=np.int64)
    (cells,) = each(lambda _: list(_cells(vectors_NM, np.arange(len(vectors_NM)), k, seed)), [None])
    ends = np.cumsum([share for _, share in cells]).tolist()
    fits = each(lambda cell: fit(vectors_NM, cell[0], cell[1], seed), cells)
    for (row_R, share), end, (share_SM, cluster_R) in zip(cells, ends, fits, strict=True):
        centroid_KM[end - share : end] = share_SM
        own_N[row_R] = end - share + cluster_R
    if len(cells) > 1:
        own_N = _settle(vectors_NM, centroid_KM, own_N, [row_R for row_R, _ in cells], ends, each)
    rows = members(own_N, k)
    _fill_empty(vectors_NM, centroid_KM, rows, seed)
    for number, row_R in enumerate(rows):
        own_N[row_R] = number
    _give_length(vectors_NM, centroid_KM, rows)
    return centroid_KM, own_N


def shares(sizes: Ints, k: int) -> Ints:
    """Divide `k` clusters among cells, in proportion to sizes: at least one per cell, and at most the cell's size.

    >>> shares(np.array([10, 1, 5]), 8)
    array([4, 1, 3])
    """
    room = sizes - 1
    return 1 + (divide(room, k - len(sizes)) if room.any() else room)


def _cells(vectors_NM: Floats, row_N: Ints, k: int, seed: int) -> Iterator[tuple[Ints, int]]:
    if k == 1 or min(len(row_N), SAMPLE_A_CLUSTER * k) * k <= FLAT:
        yield row_N, k
        return
    coarse = max(2, round(k**0.5))
    cell_N = fit(vectors_NM, row_N, coarse, seed)[1]
    cells = [row_N[positions] for positions in members(cell_N, coarse) if len(positions)]
    if len(cells) == 1:  # the vectors are too alike to form several cells
        cells = np.array_split(row_N, coarse)
    for cell, share in zip(cells, shares(np.array([len(cell) for cell in cells]), k).tolist(), strict=True):
        yield from _cells(vectors_NM, cell, share, seed)


def _settle(
    vectors_NM: Floats, centroid_KM: Floats, own_N: Ints, cells: list[Ints], ends: list[int], each: Each
) -> Ints:
    """Let vectors change to clusters of near cells, and move centroids in place. Returns each vector's cluster [n]."""
    probing = list(zip(_probing(vectors_NM, cells, each), [0, *ends], ends, strict=False))

    def best(cell: tuple[Ints, int, int]) -> tuple[Ints, Floats]:
        row_R, first, last = cell
        return _nearest(vectors_NM, row_R, centroid_KM[first:last], 1)

    for _ in range(ROUNDS):
        for number, row_R in enumerate(members(own_N, len(centroid_KM))):
            if len(row_R):
                mean_M = vectors_NM[row_R].mean(axis=0, dtype=np.float32)
                centroid_KM[number] = mean_M / max(float(np.linalg.norm(mean_M)), NO_LENGTH)
        best_N = np.full(len(vectors_NM), -np.inf, dtype=np.float32)
        for (row_R, first, _), (near_R1, score_R1) in zip(probing, each(best, probing), strict=True):
            better_R = score_R1[:, 0] > best_N[row_R]
            best_N[row_R[better_R]] = score_R1[better_R, 0]
            own_N[row_R[better_R]] = first + near_R1[better_R, 0]
    return own_N


def _probing(vectors_NM: Floats, cells: list[Ints], each: Each) -> list[Ints]:
    mean_CM = np.stack([vectors_NM[row_R].mean(axis=0, dtype=np.float32) for row_R in cells])
    mean_CM /= np.maximum(np.linalg.norm(mean_CM, axis=1, keepdims=True), NO_LENGTH)
    parts = np.array_split(np.arange(len(vectors_NM)), -(-len(vectors_NM) // CAST_ROWS))
    count = min(PROBES, len(cells))
    cell_NP = np.concatenate([*each(lambda row_R: _nearest(vectors_NM, row_R, mean_CM, count)[0], parts)])
    return [entry // count for entry in members(cell_NP.reshape(-1), len(cells))]


def _nearest(vectors_NM: Floats, row_R: Ints, centroid_KM: Floats, count: int) -> tuple[Ints, Floats]:
    near = Neighbours(centroid_KM)
    parts_R = np.array_split(row_R, -(-len(row_R) // CAST_ROWS) or 1)
    parts = [near.search(vectors_NM[part_R], count) for part_R in parts_R]
    number_RC, score_RC = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return number_RC, score_RC


def _fill_empty(vectors_NM: Floats, centroid_KM: Floats, rows: list[Ints], seed: int) -> None:
    empty = [number for number, cluster_rows in enumerate(rows) if not len(cluster_rows)]
    if not empty:
        return
    largest = [(-len(cluster_rows), number) for number, cluster_rows in enumerate(rows) if len(cluster_rows) > 1]
    heapq.heapify(largest)
    while empty and largest:
        number = heapq.heappop(largest)[1]
        largest_R = rows[number]
        first_R = _first_half(vectors_NM[largest_R], seed)
        if first_R is None:
            continue
        for half, half_R in ((number, largest_R[first_R]), (empty.pop(), largest_R[~first_R])):
            rows[half] = half_R
            centroid_KM[half] = vectors_NM[half_R].mean(axis=0, dtype=np.float64)
            heapq.heappush(largest, (-len(half_R), half))


def _first_half(vectors_NM: Floats, seed: int) -> Bools | None:
    """Split vectors [n, m] in two clusters: Booleans [n], True in the first. None if all vectors are equal."""
    differs_N: Bools = (vectors_NM != vectors_NM[0]).any(axis=1)
    if not differs_N.any():
        return None
    first_N: Bools = fit(vectors_NM, np.arange(len(vectors_NM)), 2, seed)[1] == 0
    return ~differs_N if first_N.all() or not first_N.any() else first_N


def _give_length(vectors_NM: Floats, centroid_KM: Floats, rows: list[Ints]) -> None:
    for number in np.flatnonzero(np.linalg.norm(centroid_KM, axis=1) < NO_LENGTH).tolist():
        centroid_KM[number] = vectors_NM[rows[number][0] if len(rows[number]) else 0]
    centroid_KM /= np.maximum(np.linalg.norm(centroid_KM, axis=1, keepdims=True), NO_LENGTH)
