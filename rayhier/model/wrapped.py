"""Base of routers that hold a learned IVF router and route queries in another way; all else they take from it."""

import torch
from torch import Tensor

from rayhier.model.cells import Cells
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter


class WrappedRouter:
    """A learned IVF router without its `route`, which the classes that stand around it define."""

    def __init__(self, router: LearnedIvfRouter) -> None:
        self.router = router

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
        """None: the router reads vectors, not tokens."""
        return self.router.reader

    @property
    def device(self) -> torch.device:
        """Device of the router's weights."""
        return self.router.device

    @property
    def cells(self) -> Cells:
        """Centroids by which the router places documents."""
        return self.router.cells

    def place(self, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
        """Place documents as the router does: returns their best leaves [n, k], and log-probabilities [n, k]."""
        return self.router.place(encoded, count)
