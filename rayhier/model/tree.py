"""The shape that routers over a complete tree have in common: B^H leaves, B children a node, H levels."""

import torch
from torch import nn


class TreeRouter(nn.Module):
    """A router whose leaves are those of a complete tree over vectors of size M; it reads a text's vector only."""

    def __init__(self, dimension: int, branching: int, height: int) -> None:
        super().__init__()
        self.dimension, self.branching, self.height = dimension, branching, height

    @property
    def reader(self) -> None:
        """Reader of tokens: none, the router reads a text's vector only."""
        return None

    @property
    def n_leaves(self) -> int:
        """Number of leaves, B^H."""
        return int(self.branching**self.height)

    @property
    def levels(self) -> int:
        """Number of levels, H."""
        return self.height

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device
