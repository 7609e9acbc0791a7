"""A router that ends a query's visits to leaves where an answer has become improbable (ours).

The cost of a leaf is its number of documents n. So a query visits leaves while one document in them is its answer with
at least some probability p / n, where p is the leaf's probability. Of all ways to visit a given number of documents
over all queries, this one reaches the most answers, as far as the probabilities are true. A query whose answer is
certain visits few leaves, other queries visit more. The threshold is computed from dev queries.

(Stopping at a share of the total probability, the sum of p, visits twice as many documents at equal recall:
docs/LOG.md.)
"""

import torch
from torch import Tensor

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.wrapped import WrappedRouter

NO_LEAF = -1
"""Leaf number that stands where a query visits no further leaf."""


class OwnBeam(WrappedRouter):
    """A learned IVF router whose queries visit only leaves where a document is probable enough to be an answer."""

    def __init__(self, router: LearnedIvfRouter, target: float) -> None:
        """Set the least density of a visited leaf so that the share `target` of dev answers lies in visited leaves.

        Raises ValueError where the router was trained without judged queries, and so has no probabilities of their
        answers.
        """
        if not router.calibrated:
            raise ValueError("the router was trained without judged queries")
        super().__init__(router)
        self.floor = float(torch.quantile(router.reach_T, 1 - target))

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """Choose leaves [n, k] for queries, densest first, with -1 in place of those where an answer is improbable.

        k = min(beam, leaves); every query keeps at least one leaf. Also returns the leaves' log-probabilities [n, k],
        -inf for -1.
        """
        leaf_NK, log_p_NK = self.router.route(encoded, beam)
        out_NK = log_p_NK - self.router.log_size_L[leaf_NK] < self.floor
        out_NK[:, 0] = False
        return leaf_NK.masked_fill(out_NK, NO_LEAF), log_p_NK.masked_fill(out_NK, -torch.inf)

    def multiply_adds(self, beam: int) -> int:
        """Count the multiply-adds of routing a query that visits all `beam` leaves."""
        return self.router.multiply_adds(beam)
