"""A router whose queries stop where an answer has become improbable (ours).

The cost of a leaf is its number of documents n. So a query visits leaves while one document in them is its answer with
at least some probability p / n, where p is the leaf's probability. Of all ways to visit a given number of documents
over all queries, this one reaches the most answers, as far as the probabilities are true. A query whose answer is
certain visits few leaves, the others more. The threshold is computed from dev queries.

(Stopping at a share of the total probability, the sum of p, visits twice as many documents at equal recall:
docs/LOG.md.)
"""

import torch
from torch import Tensor

from rayhier.model.cells import Cells
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter

NO_LEAF = -1
"""Leaf number that marks the end: the query visits no further leaf."""


class OwnBeam:
    """A learned IVF whose queries skip leaves that have too low a probability of an answer for each document."""

    def __init__(self, router: LearnedIvfRouter, target: float) -> None:
        """Set the density that reaches the share `target` of dev queries' answers; ValueError without calibration."""
        if not router.calibrated:
            raise ValueError("the router was trained without judged queries")
        self.router = router
        self.floor = float(torch.quantile(router.reach_T, 1 - target))

    @property
    def n_leaves(self) -> int:
        """Number of leaves of the router's tree."""
        return self.router.n_leaves

    @property
    def levels(self) -> int:
        """Number of levels of the router's tree."""
        return self.router.levels

    @property
    def reader(self) -> None:
        """Reader of tokens: none, the router reads vectors."""
        return self.router.reader

    @property
    def device(self) -> torch.device:
        """Device of the router's weights."""
        return self.router.device

    @property
    def cells(self) -> Cells:
        """Cells by which the router places documents."""
        return self.router.cells

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """Leaves [n, beam], densest first, at least one per query, then -1, and their log-probabilities."""
        leaf_NK, log_p_NK = self.router.route(encoded, beam)
        out_NK = log_p_NK - self.router.log_size_L[leaf_NK] < self.floor
        out_NK[:, 0] = False
        return leaf_NK.masked_fill(out_NK, NO_LEAF), log_p_NK.masked_fill(out_NK, -torch.inf)

    def place(self, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
        """Leaves [n, count] of a document as the router places it, and log-probabilities [n, count]."""
        return self.router.place(encoded, count)

    def multiply_adds(self, beam: int) -> int:
        """Multiply-adds of routing a query that visits all `beam` leaves."""
        return self.router.multiply_adds(beam)
