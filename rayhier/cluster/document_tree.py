"""Grow a tree from the documents up: clusters of about `branching` documents, clusters of clusters, to a root (HCE).

Algorithms 1 and 2 of "Hierarchical Corpus Encoder: Fusing Generative Retrieval and Dense Indices". All paths from the
root to a document are equally long; the number of nodes in a level depends on `branching` and the number of documents
alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.clusters import cluster
from rayhier.spec.train.hce import node_counts


@dataclass(frozen=True)
class DocumentTree:
    """A tree over n documents: level 0 is the root, level L the documents; its fields hold the levels between them."""

    centroids: list[Floats]
    """Unit centroids [nodes, m] of levels 1 to L - 1, top down. The centroid of a node is the mean of its children's
    vectors, with equal weights."""
    parents: list[Ints]
    """Number [nodes] of each node's parent in the level above, for levels 1 to L - 1; zeros, the root, for level 1."""
    leaf_N: Ints
    """Number [n] of the node of level L - 1 above each document; zeros where that level is the root."""

    @property
    def height(self) -> int:
        """Number L of edges from the root to a document: 1 where the tree is only a root."""
        return len(self.centroids) + 1

    def paths(self) -> Ints:
        """Return the nodes [n, L - 1] above each document, one of each level from 1 to L - 1."""
        return above(self.parents, self.leaf_N)

    def sizes(self) -> list[Ints]:
        """Count the documents [nodes] below each node, for levels 1 to L - 1."""
        path_NT = self.paths()
        counts = [len(parent_K) for parent_K in self.parents]
        return [np.bincount(path_NT[:, level], minlength=count) for level, count in enumerate(counts)]


def grow(vectors_NM: Floats, branching: int, seed: int) -> DocumentTree:
    """Grow the tree of n unit vectors [n, m], float32 or float16; the same seed grows the same tree.

    ValueError where `branching` is below 2 or there are no vectors. `rayhier.cluster.clusters.cluster` assigns
    documents to nodes, and nodes to their parents. Nodes are empty only where there are fewer distinct vectors than
    nodes.
    """
    counts = node_counts(len(vectors_NM), branching)
    centroids: list[Floats] = []
    owns: list[Ints] = []
    below_NM = vectors_NM
    for count in reversed(counts):
        clusters = cluster(below_NM, count, seed)
        centroids.insert(0, clusters.centroid_KM)
        owns.insert(0, clusters.own_N)
        below_NM = clusters.centroid_KM
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
