"""The common shape of routers over a complete tree: B children a node and H levels make B^H leaves."""

import torch
from torch import nn


class TreeRouter(nn.Module):
    def __init__(self, dimension: int, branching: int, height: int) -> None:
        super().__init__()
        self.dimension, self.branching, self.height = dimension, branching, height

    @property
    def reader(self) -> None:
        return None

    @property
    def n_leaves(self) -> int:
        return int(self.branching**self.height)

    @property
    def levels(self) -> int:
        return self.height

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device
