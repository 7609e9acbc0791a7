"""A router whose queries visit as many leaves as a promise about their results needs (ours).

A leaf's relative density for a query is its log density minus that of the leaf which the query would visit as number
k/2 + 1, for k results: the exact best k documents lie around there, whether the router is sure of a query or not. A
query visits the leaves whose relative density is at least a floor, which search/calibration.py computes. (By the
density itself, as own_beam.py does for answers, queries visit up to twice as many documents as with one beam for all:
docs/LOG.md.)

A relative density needs no sum over all leaves, so that codes may go first (coded_router.py): a query is routed to few
leaves, and to twice as many where all of them are dense enough.

Shapes: N queries, K leaves found, L leaves.
"""

import torch
from torch import Tensor

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.own_beam import NO_LEAF, dense_enough
from rayhier.model.router import Router, joined
from rayhier.model.wrapped import WrappedRouter
from rayhier.search.coded_router import CodedRouter

FEWEST_ROUTED = 64
"""Least number of leaves that a query is first routed to, where codes go first."""
MOST_ROUTED = 4
"""A query is routed to at most one in this many leaves before it is routed to all: codes of more would not pay."""


class PromisedBeam(WrappedRouter):
    """A learned IVF router whose queries visit the leaves of at least a relative density."""

    def __init__(self, trained: LearnedIvfRouter, router: Router, k: int, floor: float) -> None:
        """Take the trained router, the router that finds leaves (itself, or codes before it), and a floor for `k`."""
        super().__init__(trained)
        self._finds, self.floor = router, floor
        leaves = trained.n_leaves
        self._anchor = min(k // 2, leaves - 1)
        self._widths = [leaves]
        if isinstance(router, CodedRouter):
            doubled = [max(FEWEST_ROUTED, k) << step for step in range(leaves.bit_length())]
            self._widths = [*(width for width in doubled if width <= leaves // MOST_ROUTED), leaves]

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """Choose leaves [n, k] for queries, densest first, with -1 in place of those that are not dense enough.

        k is the most leaves that one of the queries visits, at most `beam`; every query visits at least one. Also
        returns the leaves' log-probabilities [n, k], -inf for -1.
        """
        left_A = torch.arange(len(encoded), device=self.device)
        rows, parts = [], []
        for width in self._widths:
            leaf_AK, log_p_AK, density_AK = self._ranked(encoded[left_A], width)
            ends_A = (density_AK[:, -1] < self.floor) | (width == self.n_leaves)
            rows.append(left_A[ends_A])
            parts.append(dense_enough(leaf_AK[ends_A], log_p_AK[ends_A], density_AK[ends_A], self.floor))
            left_A = left_A[~ends_A]
            if not len(left_A):
                break
        order_N = torch.cat(rows).argsort().cpu()
        leaf_NK, log_p_NK = (
            joined([part for part, _ in parts], NO_LEAF),
            joined([part for _, part in parts], -torch.inf),
        )
        return leaf_NK[order_N, :beam].to(self.device), log_p_NK[order_N, :beam].to(self.device)

    def floors(self, encoded: Encoded) -> Tensor:
        """Compute for queries and leaves the largest floor [n, leaves] with which a query visits a leaf.

        With a smaller floor it visits the leaf too.
        """
        floor_NL = torch.full((len(encoded), self.n_leaves), -torch.inf, device=self.device)
        for width in reversed(self._widths):
            leaf_NK, _, density_NK = self._ranked(encoded, width)
            found_NL = torch.full_like(floor_NL, -torch.inf).scatter(1, leaf_NK, density_NK)
            # Only with a floor of at most the last leaf's density is a query routed to more than `width` leaves.
            last_N1 = density_NK[:, -1:] if width < self.n_leaves else -torch.inf
            floor_NL = torch.where(floor_NL >= last_N1, found_NL.clamp(min=last_N1), floor_NL)
        return floor_NL

    def multiply_adds(self, beam: int) -> int:
        """Count the multiply-adds of routing a query to `beam` leaves."""
        return self._finds.multiply_adds(beam)

    def _ranked(self, encoded: Encoded, width: int) -> tuple[Tensor, Tensor, Tensor]:
        """Find leaves [n, width], densest first, with log-probabilities and relative densities."""
        leaf_NK, log_p_NK = self._finds.route(encoded, width)
        density_NK = log_p_NK - self.router.log_size_L[leaf_NK]
        return leaf_NK, log_p_NK, density_NK - density_NK[:, self._anchor, None]
