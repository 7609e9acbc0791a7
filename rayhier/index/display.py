"""The tree of an index for people to look at: the router's tree, or over many flat leaves a tree of their centroids."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.document_tree import above, grow
from rayhier.model.router import Router

FLAT = 64
"""Most leaves to show without nodes above them."""
BRANCHING = 8
"""Approximate children of a node in a tree of centroids."""
SEED = 0


@dataclass(frozen=True)
class DisplayTree:
    """Nodes of levels 1..T, top down: the parent of each by its number in the level above, zeros at level 1."""

    parents: list[Ints]
    leaf_L: Ints
    """Number, in the lowest level, of the node of each leaf of the index."""
    grouped: bool
    """True if the nodes above the leaves are groups of centroids, which routing does not use."""

    @classmethod
    def of(cls, router: Router) -> Self:
        """Show a router's levels, or groups of its leaves where it has many in one level."""
        leaves, levels = router.n_leaves, router.levels
        branching = round(leaves ** (1 / levels))
        if levels > 1 or leaves <= FLAT:
            parents = [np.arange(branching**level) // branching for level in range(1, levels + 1)]
            return cls(parents, np.arange(leaves), grouped=False)
        centroid_LM = router.cells.centroid_LM.cpu().numpy()
        held = np.flatnonzero(centroid_LM.any(axis=1))
        return cls(*_groups(centroid_LM[held], held, leaves), grouped=True)

    @property
    def counts(self) -> list[int]:
        """Number of nodes of each level."""
        return [len(parent_K) for parent_K in self.parents]

    def paths(self) -> Ints:
        """Nodes [leaves, T] from the root's child down to each leaf."""
        return above(self.parents, self.leaf_L)

    def summed(self, value_L: np.ndarray) -> list[np.ndarray]:
        """Sums of values of the leaves [leaves] over the leaves below each node, level by level."""
        path_LT = self.paths()
        return [
            np.bincount(path_LT[:, level], weights=value_L, minlength=count) for level, count in enumerate(self.counts)
        ]


def _groups(centroid_HM: Floats, held: Ints, leaves: int) -> tuple[list[Ints], Ints]:
    """Levels of a tree of centroids above all leaves; leaves without documents stand below the first node."""
    tree = grow(centroid_HM, BRANCHING, SEED)
    lowest = np.zeros(leaves, np.int64)
    lowest[held] = tree.leaf_N
    return [*tree.parents, lowest], np.arange(leaves)
