"""A router that stops where an answer has become improbable (ours).

A query pays for the documents of a leaf, so it should visit leaves while one of their documents is its answer with at
least some probability p / n, p the leaf's and n its size: of all ways to spend as many documents over all queries, the
one that reaches most, as far as the probabilities are true. Queries that are sure of themselves visit few leaves, the
others more. Which probability is enough is read off dev queries.

(Stopping at a share of the mass itself, the sum of p, visits twice as much at equal recall: docs/LOG.md.)
"""

from typing import Literal

import torch
from torch import Tensor

from rayhier.model.cells import Cells
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter

NONE = -1
"""Where a query visits no further leaf."""


class OwnBeam:
    """A learned IVF whose queries leave out leaves below a density; in all else that router."""

    def __init__(self, router: LearnedIvfRouter, target: float) -> None:
        """Visit leaves enough for this share of the dev queries' answers; ValueError where no query was judged."""
        if not router.calibrated:
            raise ValueError("the router was trained without judged queries")
        self.router = router
        self.floor = float(torch.quantile(router.reach_T, 1 - target))

    @property
    def n_leaves(self) -> int:
        """Leaves of the router's tree."""
        return self.router.n_leaves

    @property
    def levels(self) -> int:
        """Levels of the router's tree."""
        return self.router.levels

    @property
    def reads(self) -> Literal["vectors"]:
        """What the router reads of a text."""
        return self.router.reads

    @property
    def device(self) -> torch.device:
        """Where the router's weights lie."""
        return self.router.device

    @property
    def cells(self) -> Cells:
        """What the router places documents by."""
        return self.router.cells

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """At most `beam` leaves [n, beam], densest first, then -1, and log-probabilities [n, beam]; one at least."""
        leaf_NK, log_p_NK = self.router.route(encoded, beam)
        out_NK = log_p_NK - self.router.log_size_L[leaf_NK] < self.floor
        out_NK[:, 0] = False
        return leaf_NK.masked_fill(out_NK, NONE), log_p_NK.masked_fill(out_NK, -torch.inf)

    def place(self, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
        """Leaves [n, count] of a document as the router places it, and log-probabilities [n, count]."""
        return self.router.place(encoded, count)

    def multiply_adds(self, beam: int) -> int:
        """Multiply-adds of routing the query that visits most."""
        return self.router.multiply_adds(beam)
