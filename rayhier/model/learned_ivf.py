"""The learned IVF (ours): k-means leaves, and a router that learns which leaves hold the answers of a query.

A query x is transformed, y = x + U ReLU(V x), and a leaf's density is exp(w·y + b): how likely one document in the
leaf is an answer. Density times the leaf's size is the leaf's probability, which training fits. Leaves are visited by
density, because the cost of a search is the number of documents. W begins at the centroids, times one factor, and U
at 0, which is k-means IVF. A taller router keeps the best nodes of each level: inner nodes only exclude leaves.
Documents are placed by centroids alone (cells.py).

Vecchiato et al. ("A Learning-to-Rank Formulation of Clustering-Based Approximate Nearest Neighbor Search", 2024)
teach such a W which list holds a query's nearest document. Here judged answers teach too, in either leaf, and sizes
weigh leaves. LeanVec (Tepper et al., 2023) maps queries and documents to fewer dimensions. V and U map queries alone.

Shapes: N texts, M embedding size, B branching, H height, L = B^H leaves, K beam, R rank, C leaves of a document.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.model.cells import SCALE, Cells
from rayhier.model.encoded import Encoded
from rayhier.model.tree import TreeRouter

WIDER = 2
"""Number of inner nodes kept at each level, for each leaf that a query visits."""


class LearnedIvfRouter(TreeRouter):
    """The learned IVF's router: learned weights choose the leaves for queries, centroids for documents.

    `rank` is the number of hidden units that transform queries. `groups` is the number of groups of centroids among
    which a document's nearest are found (0: all are compared).
    """

    log_size_L: Tensor

    def __init__(self, dimension: int, branching: int, height: int, rank: int, groups: int = 0) -> None:
        super().__init__(dimension, branching, height)
        self.rank = rank
        sizes = [branching**level for level in range(1, height + 1)]
        self.W = nn.ParameterList(nn.Parameter(torch.zeros(size, dimension)) for size in sizes)
        self.b = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in sizes)
        self.V = nn.Parameter(torch.randn(rank, dimension) / dimension**0.5)
        self.U = nn.Parameter(torch.zeros(dimension, rank))
        self.cells = Cells(sizes[-1], dimension, groups)
        self.register_buffer("log_size_L", torch.zeros(sizes[-1]))

    def config(self) -> dict[str, Any]:
        shape = {"dimension": self.dimension, "branching": self.branching, "height": self.height}
        return {"type": "learned_ivf", **shape, "rank": self.rank, "groups": self.cells.groups}

    @torch.no_grad()
    def begin(self, centroid_LM: Tensor, scale: float = SCALE) -> None:
        """Start as k-means IVF: leaves' weights are `scale` x centroids [leaves, m], siblings in sequence."""
        self.cells.centroid_LM.copy_(centroid_LM)
        level_KM = centroid_LM
        for W, b in zip(reversed(self.W), reversed(self.b), strict=True):
            W.copy_(scale * level_KM)
            b.zero_()
            level_KM = F.normalize(level_KM.view(-1, self.branching, self.dimension).mean(dim=1), dim=1)

    def bend(self, x_NM: Tensor) -> Tensor:
        """Transform queries' vectors [n, m]: x + U ReLU(V x)."""
        return x_NM + F.relu(x_NM @ self.V.T) @ self.U.T

    def log_probs(self, x_NM: Tensor) -> list[Tensor]:
        """Compute log-probabilities [n, nodes] for each level that nodes hold queries' answers."""
        y_NM = self.bend(x_NM)
        logits = [y_NM @ W.T + b for W, b in zip(self.W, self.b, strict=True)]
        logits[-1] = logits[-1] + self.log_size_L
        return [F.log_softmax(logits_NC, dim=1) for logits_NC in logits]

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """Choose leaves [n, k] by the probability of an answer per document in the leaf.

        Also returns log-probabilities [n, k] of an answer in the leaf. With inner nodes the softmax's sum is an
        estimate.
        """
        y_NM, beam = self.bend(encoded.vectors), min(beam, self.n_leaves)
        return self._tree(y_NM, beam) if self.height > 1 else self._flat(y_NM, beam)

    def place(self, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
        return self.cells.place(encoded, count)

    def multiply_adds(self, beam: int) -> int:
        bend = 2 * self.rank * self.dimension
        expanded = [1, *(min(WIDER * beam, int(self.branching**level)) for level in range(1, self.height))]
        return bend + sum(expanded) * self.branching * self.dimension

    def _flat(self, y_NM: Tensor, beam: int) -> tuple[Tensor, Tensor]:
        all_NL = y_NM @ self.W[0].T + self.b[0]
        score_NK, leaf_NK = all_NL.topk(beam, dim=1)
        total_N1 = torch.logsumexp(all_NL + self.log_size_L, dim=1, keepdim=True)
        return leaf_NK, score_NK + self.log_size_L[leaf_NK] - total_N1

    def _tree(self, y_NM: Tensor, beam: int) -> tuple[Tensor, Tensor]:
        node_NK = torch.zeros(len(y_NM), 1, dtype=torch.long, device=y_NM.device)
        children_B = torch.arange(self.branching, device=y_NM.device)
        for level, (W, b) in enumerate(zip(self.W, self.b, strict=True), start=1):
            child_NC = (node_NK.unsqueeze(2) * self.branching + children_B).flatten(1)
            score_NC = _given(y_NM, child_NC, W, b)
            if level < self.height:
                node_NK = child_NC.gather(1, score_NC.topk(min(WIDER * beam, score_NC.shape[1]), dim=1).indices)
        score_NK, place_NK = score_NC.topk(beam, dim=1)
        leaf_NK = child_NC.gather(1, place_NK)
        total_N1 = torch.logsumexp(score_NC + self.log_size_L[child_NC], dim=1, keepdim=True)
        return leaf_NK, score_NK + self.log_size_L[leaf_NK] - total_N1


def _given(y_NM: Tensor, node_NS: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """Compute scores w·y + b [n, s] of nodes. For many texts a product with all nodes is faster."""
    if node_NS.numel() >= len(W):
        return (y_NM @ W.T + b).gather(1, node_NS)
    # For one query, twice as fast as W[node_NS] and an einsum.
    return torch.bmm(F.embedding(node_NS, W), y_NM.unsqueeze(2)).squeeze(2) + b[node_NS]


def reach_loss(log_p_NL: Tensor, row_P: Tensor, leaf_PR: Tensor, weight_P: Tensor) -> Tensor:
    """Compute the sum over pairs of -w log(p): p is the total probability of the leaves of the answer.

    A pair is a row `row_P` of `log_p_NL` and an answer in the leaves `leaf_PR` [pairs, r]. Equal leaves count once.

    >>> log_p = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> row, leaves = torch.tensor([0, 0]), torch.tensor([[0, 1], [2, 2]])
    >>> reach_loss(log_p, row, leaves, torch.ones(2))  # -log 0.8 - log 0.2
    tensor(1.8326)
    """
    log_p_PR = log_p_NL[row_P.unsqueeze(1), leaf_PR]
    again_PR = (leaf_PR.unsqueeze(2) == leaf_PR.unsqueeze(1)).tril(-1).any(dim=2)
    return -(torch.logsumexp(log_p_PR.masked_fill(again_PR, -torch.inf), dim=1) * weight_P).sum()
