"""Grow a tree from the documents up: clusters of about `branching` documents, clusters of clusters, to a root (HCE).

Algorithms 1 and 2 of "Hierarchical Corpus Encoder: Fusing Generative Retrieval and Dense Indices". All paths from the
root to a document are equally long. The number of nodes in a level depends on `branching` and the number of documents
alone.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rayhier.arrays import Bools, Floats, Ints
from rayhier.cluster.kmeans import CAST_ROWS, SAMPLE_A_CLUSTER, divide, fit, members, nearest
from rayhier.spec.train.hce import node_counts

FLAT = 200_000_000
"""Largest product of the number of vectors and that of clusters for which k-means takes one step. Larger problems take
two. Such a k-means takes about a minute on two cores at 384 dimensions."""

PROBES, ROUNDS = 4, 4
"""Number of nearest cells whose clusters a vector may join (PROBES), and number of times that it chooses (ROUNDS)."""

NO_LENGTH = 1e-6
"""Length below which the mean of vectors counts as having no direction."""


@dataclass(frozen=True)
class DocumentTree:
    """A tree over n documents: level 0 is the root, level L the documents. Its fields hold the levels between them."""

    centroids: list[Floats]
    """Unit centroids [nodes, m] of levels 1 to L - 1, top down. The centroid of a node is the mean of its children's
    vectors, with equal weights."""
    parents: list[Ints]
    """Number [nodes] of each node's parent in the level above, for levels 1 to L - 1; zeros, the root, for level 1."""
    leaf_N: Ints
    """Number [n] of the node of level L - 1 above each document; zeros where that level is the root."""

    def paths(self) -> Ints:
        """Return the nodes [n, L - 1] above each document, one of each level from 1 to L - 1."""
        return above(self.parents, self.leaf_N)


def grow(vectors_NM: Floats, branching: int, seed: int) -> DocumentTree:
    """Grow the tree of n unit vectors [n, m], float32 or float16. The same seed grows the same tree.

    ValueError if `branching` is below 2 or there are no vectors. `rayhier.cluster.document_tree.cluster` assigns
    documents to nodes, and nodes to their parents. Nodes are empty only where there are fewer distinct vectors than
    nodes.
    """
    counts = node_counts(len(vectors_NM), branching)
    centroids: list[Floats] = []
    owns: list[Ints] = []
    below_NM = vectors_NM
    for count in reversed(counts):
        below_NM, own_N = cluster(below_NM, count, seed)
        centroids.insert(0, below_NM)
        owns.insert(0, own_N)
    *parents, leaf_N = [np.zeros(counts[0] if counts else len(vectors_NM), dtype=np.int64), *owns]
    return DocumentTree(centroids, parents, leaf_N)


def above(parents: Sequence[Ints], leaf_N: Ints) -> Ints:
    """Return the nodes [n, levels] above each document, top down, from `parents` of each level and leaves [n]."""
    path_NT = np.empty((len(leaf_N), len(parents)), dtype=np.int64)
    node_N = leaf_N
    for level in reversed(range(len(parents))):
        path_NT[:, level] = node_N
        node_N = parents[level][node_N]
    return path_NT


def cluster(vectors_NM: Floats, k: int, seed: int) -> tuple[Floats, Ints]:
    """Cluster n unit vectors [n, m], in float32 or float16. Returns unit centroids [k, m] and each vector's own [n].

    A vector belongs to the nearest centroid; where k-means takes two steps, to the nearest in the cells near it. Where
    a cluster is empty, another is cut in two halves, whose centroids are their means. Clusters stay empty only where
    there are fewer distinct vectors than clusters.
    """
    centroid_KM = np.empty((k, vectors_NM.shape[1]), dtype=np.float32)
    own_N = np.empty(len(vectors_NM), dtype=np.int64)
    cells = list(_cells(vectors_NM, np.arange(len(vectors_NM)), k, seed))
    ends = np.cumsum([share for _, share in cells]).tolist()
    for (row_R, share), end in zip(cells, ends, strict=True):
        centroid_KM[end - share : end], cluster_R = fit(vectors_NM, row_R, share, seed)
        own_N[row_R] = end - share + cluster_R
    if len(cells) > 1:
        own_N = _settle(vectors_NM, centroid_KM, own_N, [row_R for row_R, _ in cells], ends)
    rows = members(own_N, k)
    _fill_empty(vectors_NM, centroid_KM, rows, seed)
    for number, row_R in enumerate(rows):
        own_N[row_R] = number
    _give_length(vectors_NM, centroid_KM, rows)
    return centroid_KM, own_N


def shares(sizes: Ints, k: int) -> Ints:
    """Divide `k` clusters among cells: one for each, the rest in proportion to the cells' sizes, at most a cell's size.

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


def _settle(vectors_NM: Floats, centroid_KM: Floats, own_N: Ints, cells: list[Ints], ends: list[int]) -> Ints:
    """Let vectors change to clusters of near cells, and move centroids, in place. Returns the clusters [n]."""
    probing = _probing(vectors_NM, cells)
    for _ in range(ROUNDS):
        for number, row_R in enumerate(members(own_N, len(centroid_KM))):
            if len(row_R):
                mean_M = vectors_NM[row_R].mean(axis=0, dtype=np.float32)
                centroid_KM[number] = mean_M / max(float(np.linalg.norm(mean_M)), NO_LENGTH)
        best_N = np.full(len(vectors_NM), -np.inf, dtype=np.float32)
        for row_R, first, last in zip(probing, [0, *ends], ends, strict=False):
            for part_R in np.array_split(row_R, -(-len(row_R) // CAST_ROWS)) if len(row_R) else []:
                centroid, score = nearest(vectors_NM[part_R].astype(np.float32), centroid_KM[first:last], 1)
                better = score[:, 0] > best_N[part_R]
                best_N[part_R[better]] = score[better, 0]
                own_N[part_R[better]] = first + centroid[better, 0]
    return own_N


def _probing(vectors_NM: Floats, cells: list[Ints]) -> list[Ints]:
    mean_CM = np.stack([vectors_NM[row_R].mean(axis=0, dtype=np.float32) for row_R in cells])
    mean_CM /= np.maximum(np.linalg.norm(mean_CM, axis=1, keepdims=True), NO_LENGTH)
    parts = np.array_split(vectors_NM, -(-len(vectors_NM) // CAST_ROWS))
    count = min(PROBES, len(cells))
    cell_NP = np.concatenate([nearest(part.astype(np.float32), mean_CM, count)[0] for part in parts])
    return [entry // count for entry in members(cell_NP.reshape(-1), len(cells))]


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
    """Split vectors [n, m] in two clusters, neither empty: Booleans [n], True in the first. None if all are equal."""
    differs_N: Bools = (vectors_NM != vectors_NM[0]).any(axis=1)
    if not differs_N.any():
        return None
    first_N: Bools = fit(vectors_NM, np.arange(len(vectors_NM)), 2, seed)[1] == 0
    return ~differs_N if first_N.all() or not first_N.any() else first_N


def _give_length(vectors_NM: Floats, centroid_KM: Floats, rows: list[Ints]) -> None:
    for number in np.flatnonzero(np.linalg.norm(centroid_KM, axis=1) < NO_LENGTH).tolist():
        centroid_KM[number] = vectors_NM[rows[number][0] if len(rows[number]) else 0]
    centroid_KM /= np.maximum(np.linalg.norm(centroid_KM, axis=1, keepdims=True), NO_LENGTH)
