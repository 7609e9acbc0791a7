"""Keep the leaves' centroids in a router that trains. `opened_router.OpenedCells` places documents by centroids.

Shapes: M embedding size, L leaves, G groups of leaves.
"""

import torch
from torch import Tensor, nn


class Cells(nn.Module):
    """Centroids that place documents in leaves, with prices that divert documents from crowded leaves."""

    centroid_LM: Tensor
    """Centroids of the leaves, unit vectors [leaves, m]. A leaf without documents has zeros."""
    price_L: Tensor
    """Amounts [leaves], higher for crowded leaves, that are subtracted from a document's cosines to the centroids."""
    border: Tensor
    """Scalar: a document lies in a second leaf if its two greatest (cosine - price) differ by at most this much."""
    group_GM: Tensor
    """Centroids of groups of leaves [groups, m]. Without groups, a document is compared with every leaf."""
    group_L: Tensor

    def __init__(self, leaves: int, dimension: int, groups: int = 0) -> None:
        super().__init__()
        self.groups = groups
        self.register_buffer("centroid_LM", torch.zeros(leaves, dimension))
        self.register_buffer("price_L", torch.zeros(leaves))
        self.register_buffer("border", torch.tensor(2.0))
        self.register_buffer("group_GM", torch.zeros(groups, dimension))
        self.register_buffer("group_L", torch.zeros(leaves if groups else 0, dtype=torch.long))
