"""The document tree of a training: the nodes above each document, and its siblings.

The first worker grows the tree; checkpoints keep it, as the hierarchy's centroids are trained for these nodes.
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
"""Further documents to look at, as some turn out to be answers."""


class TrainingTree:
    """The tree that a learner trains with; its nodes are fixed in number, its shape changes with every planting."""

    def __init__(self, learner: Learner, hierarchy: Hierarchy, counts: Sequence[int], documents: int) -> None:
        """Keep an empty tree with `counts` nodes in its levels; `plant` fills the tree."""
        self.learner, self.hierarchy, self.counts = learner, hierarchy, list(counts)
        for level, count in enumerate(self.counts):
            learner.kept[f"parent.{level}"] = torch.zeros(count, dtype=torch.long)
        learner.kept["leaf"] = torch.zeros(documents, dtype=torch.long)
        learner.kept["version"] = torch.zeros(1, dtype=torch.long)
        self._arranged = -1

    @property
    def version(self) -> int:
        """Number of times that the tree was planted."""
        return int(self.learner.kept["version"])

    def plant(self, document_NM: Floats, branching: int, seed: int) -> None:
        """Grow the tree from documents [n, m] on the first worker, and start its centroids anew on all of them.

        Documents are clustered by direction, whatever their length.
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
        for centroid, own_KM in zip(self.hierarchy.centroids, tree.centroids, strict=False):
            centroid.copy_(torch.from_numpy(own_KM))

    def arrange(self) -> None:
        """Compute paths and siblings of the kept tree, also after a checkpoint was loaded."""
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
        """Return the documents below each node of a level, 0 for the root, in a new random order."""
        self.arrange()
        node_N = self.path_NT[:, level - 1].numpy() if level else np.zeros(len(self.path_NT), dtype=np.int64)
        return Below.of(node_N, self.counts[level - 1] if level else 1, generator)


def directions(vector_NM: Floats) -> Floats:
    """Scale vectors [n, m] to unit length; returns the same array where all have it.

    >>> directions(np.array([[3.0, 4.0], [0.0, 1.0]], dtype=np.float32)).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 1.0]]
    """
    length_N1 = np.linalg.norm(vector_NM, axis=1, keepdims=True)
    if np.allclose(length_N1, 1, atol=1e-3):
        return vector_NM
    return np.asarray(vector_NM / np.maximum(length_N1, np.finfo(np.float32).tiny))


class Below:
    """Documents below each node of a level, in random order, from which siblings are drawn."""

    def __init__(self, node_N: Ints, order_N: Ints, place_N: Ints, begin_K: Ints) -> None:
        self.node_N, self.order_N, self.place_N, self.begin_K = node_N, order_N, place_N, begin_K

    @classmethod
    def of(cls, node_N: Ints, nodes: int, generator: np.random.Generator) -> "Below":
        """Order documents, which lie below nodes [n], by node and within a node at random."""
        order_N = generator.permutation(len(node_N))
        order_N = order_N[np.argsort(node_N[order_N], kind="stable")]
        place_N = np.empty_like(order_N)
        place_N[order_N] = np.arange(len(order_N))
        return cls(node_N, order_N, place_N, np.searchsorted(node_N[order_N], np.arange(nodes + 1)))

    def siblings(self, query_N: Ints, document_N: Ints, known: KnownPositives, count: int) -> Ints:
        """Draw `count` documents [n, count] below the node of each document, without the query's known answers.

        Those after the document in the node's order are taken; -1 where there are fewer.
        """
        node_N = self.node_N[document_N]
        begin_N, size_N = self.begin_K[node_N], np.diff(self.begin_K)[node_N]
        step_W = np.arange(1, count + SPARE + 1)
        place_NW = (self.place_N[document_N] - begin_N)[:, None] + step_W
        row_NW = self.order_N[begin_N[:, None] + place_NW % size_N[:, None]]
        wrong_NW = (step_W < size_N[:, None]) & ~known(query_N[:, None], row_NW) & (row_NW != document_N[:, None])
        order_NS = np.argsort(~wrong_NW, axis=1, kind="stable")[:, :count]
        return np.take_along_axis(np.where(wrong_NW, row_NW, -1), order_NS, axis=1)
