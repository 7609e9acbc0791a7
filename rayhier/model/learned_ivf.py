"""The learned IVF (ours): k-means leaves, and a router that learns which leaves hold the answers of a query.

A query x is transformed, y = x + U ReLU(V x). A leaf's density exp(w·y + b) says how likely a document of the leaf is
an answer. U, V, and each leaf's b and w (a row of W) are learned. Density times the leaf's size is the leaf's
probability, which training fits. Leaves are visited by density, because the cost of a search is the number of
documents. At the start, W is the centroids times one factor and U is 0, which equals k-means IVF. Centroids alone place
documents (cells.py).

Vecchiato et al. ("A Learning-to-Rank Formulation of Clustering-Based Approximate Nearest Neighbor Search", 2024) teach
such a W which list holds a query's nearest document. Here, W also learns judged answers, in either of their leaves, and
leaves are weighed by size. LeanVec (Tepper et al., 2023) maps queries and documents to fewer dimensions. V and U map
queries alone.

Shapes: N texts, M embedding size, L leaves, K beam, R rank.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.model.cells import Cells
from rayhier.model.opened_router import SCALE


class LearnedIvfRouter(nn.Module):
    """The learned IVF's router: learned weights choose the leaves for queries, centroids the leaves for documents.

    `rank` is the number of hidden units that transform queries. `groups` is the number of groups of centroids in which
    a document's nearest centroids are found (0: all centroids are compared).
    """

    log_size_L: Tensor

    def __init__(self, dimension: int, leaves: int, rank: int, groups: int = 0) -> None:
        super().__init__()
        self.dimension, self.n_leaves, self.rank = dimension, leaves, rank
        self.W, self.b = nn.Parameter(torch.zeros(leaves, dimension)), nn.Parameter(torch.zeros(leaves))
        self.V = nn.Parameter(torch.randn(rank, dimension) / dimension**0.5)
        self.U = nn.Parameter(torch.zeros(dimension, rank))
        self.cells = Cells(leaves, dimension, groups)
        self.register_buffer("log_size_L", torch.zeros(leaves))

    @property
    def device(self) -> torch.device:
        return self.W.device

    def config(self) -> dict[str, Any]:
        shape = {"dimension": self.dimension, "leaves": self.n_leaves, "rank": self.rank, "groups": self.cells.groups}
        return {"type": "learned_ivf", **shape}

    @torch.no_grad()
    def begin(self, centroid_LM: Tensor, scale: float = SCALE) -> None:
        """Start as k-means IVF: leaves' weights are `scale` x their centroids [leaves, m]."""
        self.cells.centroid_LM.copy_(centroid_LM)
        self.W.copy_(scale * centroid_LM)
        self.b.zero_()

    def bend(self, x_NM: Tensor) -> Tensor:
        """Transform queries' vectors [n, m] before they are compared with leaves: x + U ReLU(V x)."""
        return x_NM + F.relu(x_NM @ self.V.T) @ self.U.T

    def log_probs(self, x_NM: Tensor) -> Tensor:
        """Compute log-probabilities [n, leaves] that leaves hold the answers of queries."""
        return F.log_softmax(self.bend(x_NM) @ self.W.T + self.b + self.log_size_L, dim=1)


def reach_loss(log_p_NL: Tensor, row_P: Tensor, leaf_PR: Tensor, weight_P: Tensor) -> Tensor:
    """Compute the sum over pairs of -weight · log(p). p is the total probability of the answer's leaves.

    A pair is a row `row_P` of `log_p_NL` and an answer in the leaves `leaf_PR` [pairs, r]. Equal leaves count once.

    >>> log_p = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> row, leaves = torch.tensor([0, 0]), torch.tensor([[0, 1], [2, 2]])
    >>> reach_loss(log_p, row, leaves, torch.ones(2))  # -log 0.8 - log 0.2
    tensor(1.8326)
    """
    log_p_PR = log_p_NL[row_P.unsqueeze(1), leaf_PR]
    again_PR = (leaf_PR.unsqueeze(2) == leaf_PR.unsqueeze(1)).tril(-1).any(dim=2)
    return -(torch.logsumexp(log_p_PR.masked_fill(again_PR, -torch.inf), dim=1) * weight_P).sum()
