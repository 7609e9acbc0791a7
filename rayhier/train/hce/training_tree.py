"""The tree of documents that HCE trains with: the nodes above each document, and the documents near it.

The first worker builds the tree; checkpoints keep it, as the nodes' centroids are trained for it.
"""

from collections.abc import Sequence

import numpy as np
import torch

from rayhier.arrays import Floats, Ints
from rayhier.cluster.document_tree import DocumentTree, grow
from rayhier.model.hce import Hierarchy
from rayhier.train.examples import KnownPositives
from rayhier.train.loop import Learner

SPARE = 4
"""Further documents to look at when siblings are drawn, as some are known answers."""


class TrainingTree:
    """The tree that a training uses: its number of nodes is fixed, its shape changes whenever it is built anew."""

    def __init__(self, learner: Learner, hierarchy: Hierarchy, counts: Sequence[int], documents: int) -> None:
        """Keep an empty tree of `counts` nodes at its levels; `plant` fills the tree.

        The tree's tensors are in `learner.kept`, so that checkpoints hold them.
        """
        self.learner, self.hierarchy, self.counts = learner, hierarchy, list(counts)
        for level, count in enumerate(self.counts):
            learner.kept[f"parent.{level}"] = torch.zeros(count, dtype=torch.long)
        learner.kept["leaf"] = torch.zeros(documents, dtype=torch.long)
        learner.kept["version"] = torch.zeros(1, dtype=torch.long)
        self._arranged = -1

    @property
    def version(self) -> int:
        """Number of times that the tree was built."""
        return int(self.learner.kept["version"])

    def plant(self, document_NM: Floats, branching: int, seed: int) -> None:
        """Build the tree from documents' vectors [n, m], and start its centroids anew, on all workers.

        The first worker clusters the documents by direction, whatever their length, into nodes of `branching` children.
        """
        group, kept = self.learner.group, self.learner.kept
        if group.rank == 0:
            self._note(grow(directions(document_NM), branching, seed))
        kept["version"] += 1
        tensors = [kept["leaf"], *(kept[f"parent.{level}"] for level in range(len(self.counts)))]
        moved = [tensor.to(self.learner.parameters[0].device) for tensor in tensors]
        group.copy_from_first([*moved, *(centroid.data for centroid in self.hierarchy.centroids)])
        for kept_tensor, tensor in zip(tensors, moved, strict=True):
            kept_tensor.copy_(tensor.cpu())
        for centroid in self.hierarchy.centroids:
            self.learner.optimizer.state.pop(centroid, None)

    @torch.no_grad()
    def _note(self, tree: DocumentTree) -> None:
        kept = self.learner.kept
        kept["leaf"].copy_(torch.from_numpy(tree.leaf_N))
        for level, parent_K in enumerate(tree.parents):
            kept[f"parent.{level}"].copy_(torch.from_numpy(parent_K))
        for centroid, level_KM in zip(self.hierarchy.centroids, tree.centroids, strict=False):
            centroid.copy_(torch.from_numpy(level_KM))

    def arrange(self) -> None:
        """Compute which nodes lie above each document and which are siblings, if the tree has changed."""
        if self._arranged == self.version:
            return
        kept = self.learner.kept
        parents = [kept[f"parent.{level}"] for level in range(len(self.counts))]
        node_N = kept["leaf"]
        above = []
        for parent_K in reversed(parents):
            above.append(node_N)
            node_N = parent_K[node_N]
        self.path_NT = (
            torch.stack([*reversed(above)], dim=1) if above else torch.zeros(len(node_N), 0, dtype=torch.long)
        )
        told_apart = len(self.hierarchy)
        alive = [
            torch.bincount(self.path_NT[:, level], minlength=self.counts[level]) > 0 for level in range(told_apart)
        ]
        self.hierarchy.arrange(parents[:told_apart], alive)
        self._arranged = self.version

    def below(self, level: int, generator: np.random.Generator) -> "Below":
        """List the documents below each node of a level, 0 for the root, in a new random order."""
        self.arrange()
        node_N = self.path_NT[:, level - 1].numpy() if level else np.zeros(len(self.path_NT), dtype=np.int64)
        return Below.of(node_N, self.counts[level - 1] if level else 1, generator)


def directions(vector_NM: Floats) -> Floats:
    """Scale vectors [n, m] to unit length; returns the input where all have it already.

    >>> directions(np.array([[3.0, 4.0], [0.0, 1.0]], dtype=np.float32)).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 1.0]]
    """
    length_N1 = np.linalg.norm(vector_NM, axis=1, keepdims=True)
    if np.allclose(length_N1, 1, atol=1e-3):
        return vector_NM
    return np.asarray(vector_NM / np.maximum(length_N1, np.finfo(np.float32).tiny))


class Below:
    """Documents below each node of a level of the tree, in random order, from which near documents are drawn."""

    def __init__(self, node_N: Ints, order_N: Ints, place_N: Ints, begin_K: Ints) -> None:
        self.node_N, self.order_N, self.place_N, self.begin_K = node_N, order_N, place_N, begin_K

    @classmethod
    def of(cls, node_N: Ints, nodes: int, generator: np.random.Generator) -> "Below":
        """Sort documents by their nodes [n], numbered below `nodes`, and at random within a node."""
        order_N = generator.permutation(len(node_N))
        order_N = order_N[np.argsort(node_N[order_N], kind="stable")]
        place_N = np.empty_like(order_N)
        place_N[order_N] = np.arange(len(order_N))
        return cls(node_N, order_N, place_N, np.searchsorted(node_N[order_N], np.arange(nodes + 1)))

    def siblings(self, query_N: Ints, document_N: Ints, known: KnownPositives, count: int) -> Ints:
        """Draw `count` other documents below the node of each document: rows [n, count], -1 where there are fewer.

        The documents that follow in the node's random order are taken, but no known answers of the query.
        """
        node_N = self.node_N[document_N]
        begin_N, size_N = self.begin_K[node_N], np.diff(self.begin_K)[node_N]
        step_W = np.arange(1, count + SPARE + 1)
        place_NW = (self.place_N[document_N] - begin_N)[:, None] + step_W
        row_NW = self.order_N[begin_N[:, None] + place_NW % size_N[:, None]]
        wrong_NW = (step_W < size_N[:, None]) & ~known(query_N[:, None], row_NW) & (row_NW != document_N[:, None])
        order_NS = np.argsort(~wrong_NW, axis=1, kind="stable")[:, :count]
        return np.take_along_axis(np.where(wrong_NW, row_NW, -1), order_NS, axis=1)
