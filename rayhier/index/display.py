"""The tree that people see: the router's tree, or a tree of centroids if many leaves lie in one level."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from rayhier.arrays import Ints
from rayhier.cluster.document_tree import above, grow
from rayhier.model.opened_router import OpenedRouter

FLAT = 64
"""Largest number of leaves in one level that are shown without nodes above them."""
BRANCHING = 8
SEED = 0


@dataclass(frozen=True)
class DisplayTree:
    """The parent of each node, for levels 1 to T, top down. The nodes of the lowest level are the index's leaves."""

    parents: list[Ints]
    grouped: bool
    """True if the nodes above the leaves are groups of near centroids, which routing does not use."""

    @classmethod
    def of(cls, router: OpenedRouter) -> Self:
        leaves, levels = router.n_leaves, router.levels
        branching = round(leaves ** (1 / levels))
        if levels > 1 or leaves <= FLAT:
            parents = [np.arange(branching**level) // branching for level in range(1, levels + 1)]
            return cls(parents, grouped=False)
        centroid_LM = router.cells.centroid_LM
        filled = np.flatnonzero(centroid_LM.any(axis=1))
        tree = grow(centroid_LM[filled], BRANCHING, SEED)
        lowest = np.zeros(leaves, np.int64)  # leaves without documents lie below the first node
        lowest[filled] = tree.leaf_N
        return cls([*tree.parents, lowest], grouped=True)

    @property
    def counts(self) -> list[int]:
        return [len(parent_K) for parent_K in self.parents]

    def paths(self) -> Ints:
        """Return the nodes [leaves, T] above each leaf, from the root's child down."""
        return above(self.parents, np.arange(len(self.parents[-1])))

    def summed(self, value_L: np.ndarray) -> list[np.ndarray]:
        """Sum values of leaves [leaves] over the leaves below each node. Returns sums [nodes], level by level."""
        path_LT = self.paths()
        return [
            np.bincount(path_LT[:, level], weights=value_L, minlength=count) for level, count in enumerate(self.counts)
        ]
