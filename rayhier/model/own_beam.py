"""A router that ends a query's visits to leaves where an answer has become improbable (ours).

The cost of a leaf is its number of documents n. So a query visits leaves while one document in them is its answer with
at least some probability p / n, where p is the leaf's probability. Of all ways to visit a given number of documents
over all queries, this one reaches the most answers, as far as the probabilities are true. A query whose answer is
certain visits few leaves, other queries visit more. The threshold is computed from dev queries.

(Stopping at a share of the total probability, the sum of p, visits twice as many documents at equal recall:
docs/LOG.md.)
"""

from typing import Self

import torch
from torch import Tensor

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.wrapped import WrappedRouter

NO_LEAF = -1
"""Leaf number that stands where a query visits no further leaf."""


class OwnBeam(WrappedRouter):
    """A learned IVF router whose queries visit only leaves where a document is probable enough to be an answer."""

    def __init__(self, router: LearnedIvfRouter, floor: float) -> None:
        """Take the least log density of a leaf that queries visit."""
        super().__init__(router)
        self.floor = floor

    @classmethod
    def reaching(cls, router: LearnedIvfRouter, target: float) -> Self:
        """Set the least density so that the share `target` of dev answers lies in visited leaves.

        Raises ValueError where the router was trained without judged queries, and so has no probabilities of their
        answers.
        """
        if not router.calibrated:
            raise ValueError("the router was trained without judged queries")
        return cls(router, float(torch.quantile(router.reach_T, 1 - target)))

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """Choose leaves [n, k] for queries, densest first, with -1 in place of those where an answer is improbable.

        k is the most leaves that one of the queries visits, at most `beam`; every query visits at least one. Also
        returns the leaves' log-probabilities [n, k], -inf for -1.
        """
        leaf_NK, log_p_NK = self.router.route(encoded, beam)
        return dense_enough(leaf_NK, log_p_NK, log_p_NK - self.router.log_size_L[leaf_NK], self.floor)

    def multiply_adds(self, beam: int) -> int:
        """Count the multiply-adds of routing a query that visits all `beam` leaves."""
        return self.router.multiply_adds(beam)


def dense_enough(leaf_NK: Tensor, log_p_NK: Tensor, density_NK: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Keep leaves [n, k] whose density is at least `floor`, and the first of each query, which is its densest.

    Returns leaves and log-probabilities [n, k], -1 and -inf in place of the others; columns that no query needs are
    left out.
    """
    kept_NK = density_NK >= floor
    kept_NK[:, 0] = True
    most = int(kept_NK.sum(dim=1).max()) if len(kept_NK) else 1
    leaf_NK, log_p_NK, out_NK = leaf_NK[:, :most], log_p_NK[:, :most], ~kept_NK[:, :most]
    return leaf_NK.masked_fill(out_NK, NO_LEAF), log_p_NK.masked_fill(out_NK, -torch.inf)
