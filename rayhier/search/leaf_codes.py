"""Codes of a router's leaves: a first pass that compares a query with every leaf by table lookups (ours).

A leaf's weights are cut into pieces of four numbers, and each piece is replaced by the nearest of sixteen centroids: a
code of four bits. A query's products with all centroids are a table, and a leaf's score is a sum of its entries, which
faiss adds in the processor's registers (André et al., "Cache locality is not enough", 2015). So a leaf costs 1/128 of a
product of 384 dimensions, where a projection to 48 dimensions costs an eighth and misses more of the best leaves.

Shapes: N queries, L leaves, M embedding size.
"""

from typing import Self

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Floats
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.search.codebook import CENTROIDS, PIECE, Codebook, multiply_adds

FEWEST = 39 * CENTROIDS
"""Fewest leaves that are coded, 39 for each centroid as faiss asks: fewer are compared in full at once."""


class LeafCodes:
    """Four-bit codes of the weights and biases of a flat router's leaves."""

    def __init__(self, weight_LM: Floats, bias_L: Floats) -> None:
        """Code the weights, from which their mean is taken: it adds the same number to all scores of a query.

        The bias is one more coordinate, by which every query has 1. The result is the same for equal weights.
        """
        self.leaves, self.dimension = (int(size) for size in weight_LM.shape)
        self.pieces = -(-(self.dimension + 1) // PIECE)
        coded_LD = np.zeros((self.leaves, self.pieces * PIECE), np.float32)
        coded_LD[:, : self.dimension] = weight_LM - weight_LM.mean(axis=0)
        coded_LD[:, self.dimension] = bias_L - bias_L.mean()
        self._index = Codebook.train(coded_LD).flat(coded_LD)

    @classmethod
    def of(cls, router: LearnedIvfRouter) -> Self:
        """Code the leaves of a router of height 1; there must be at least 16."""
        weight_LM, bias_L = (parameters[-1].detach().cpu().numpy() for parameters in (router.W, router.b))
        return cls(weight_LM, bias_L)

    def __call__(self, y_NM: Tensor, count: int) -> Tensor:
        """Choose the `count` leaves [n, count] with the highest scores by their codes; -1 where faiss finds fewer."""
        query_ND = np.zeros((len(y_NM), self.pieces * PIECE), np.float32)
        query_ND[:, : self.dimension] = y_NM.detach().cpu().numpy()
        query_ND[:, self.dimension] = 1
        _, leaf_NS = self._index.search(query_ND, count)
        return torch.from_numpy(leaf_NS).to(y_NM.device)

    def multiply_adds(self) -> int:
        """Count the multiply-adds of one query: its table, and the sums, by the time that they take."""
        return multiply_adds(self.leaves, self.dimension + 1)
