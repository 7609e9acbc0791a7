"""Train EHI's router: a tree of learned classifiers. `opened_router.Ehi` searches the tree with a beam.

Kumar et al., "End-to-end Learning of Hierarchical Index for Efficient Dense Retrieval", 3.3. At height h (1..H) the
input is x = `[onehot(i_{h-1}); …; onehot(i_1); E(t)]`. E(t) is the vector of text t, i_h the child taken at height h.
Then k = x + ReLU(U_h x) and p̂_h = softmax(W_h k). A child's probability is p̂_h times the parent's probability. All
nodes of a level share W_h and U_h.

Shapes: N texts, M embedding size, B branching, H height.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.model.cells import Cells
from rayhier.spec.train.ehi import MARGIN, UNLIKE, Loss

WARM_SCALE = 20.0
U_STD = 1e-3


class EhiRouter(nn.Module):
    """EHI's router over unit vectors. With `residual: relu`, each level has a residual layer (the paper's U_h)."""

    def __init__(self, dimension: int, branching: int, height: int, residual: Literal["relu", "none"]) -> None:
        super().__init__()
        self.dimension, self.branching, self.height, self.residual = dimension, branching, height, residual
        widths = [dimension + branching * level for level in range(height)]
        self.W = nn.ModuleList(nn.Linear(width, branching, bias=False) for width in widths)
        self.U = nn.ModuleList(nn.Linear(width, width, bias=False) for width in widths if residual == "relu")
        for linear in self.U:
            # Weights of exactly zero would never change: ReLU'(0) = 0.
            nn.init.normal_(linear.weight, std=U_STD)  # type: ignore[arg-type]
        self.cells = Cells(branching**height, dimension)
        """Centroids of each leaf's training documents, without prices, to choose every document's second leaf."""

    @property
    def n_leaves(self) -> int:
        return int(self.branching**self.height)

    def config(self) -> dict[str, Any]:
        shape = {"dimension": self.dimension, "branching": self.branching, "height": self.height}
        return {"type": "ehi", **shape, "residual": self.residual}

    @torch.no_grad()
    def warm_start(self, centroids_BM: Tensor) -> None:
        """Begin as k-means IVF: set W_1 to 20 x unit centroids [B, M], so that the nearest centroid's child is best."""
        self.W[0].weight.copy_(WARM_SCALE * centroids_BM)  # type: ignore[operator]

    def path_embedding(self, x_NM: Tensor) -> Tensor:
        """Compute path embeddings `T(t) = [p_1; …; p_H]` [n, B·H]: probabilities along the most probable path."""
        taken_N1 = x_NM.new_ones(len(x_NM), 1)
        input_ND = x_NM
        levels = []
        for level in range(self.height):
            p_NB = self._log_softmax(level, input_ND).exp() * taken_N1
            levels.append(p_NB)
            taken_N1, child_N1 = p_NB.max(dim=1, keepdim=True)
            input_ND = torch.cat([self._onehot(child_N1.squeeze(1)), input_ND], dim=1)
        return torch.cat(levels, dim=1)

    def given_path(self, x_NM: Tensor, path_NH: Tensor) -> list[Tensor]:
        """Compute log-probabilities [n, B] of the children at each level along paths [n, h]."""
        input_ND = x_NM
        levels = []
        for level in range(self.height):
            levels.append(self._log_softmax(level, input_ND))
            input_ND = torch.cat([self._onehot(path_NH[:, level]), input_ND], dim=1)
        return levels

    def _log_softmax(self, level: int, x: Tensor) -> Tensor:
        k = x + F.relu(self.U[level](x)) if self.residual == "relu" else x
        return F.log_softmax(self.W[level](k), dim=-1)

    def _onehot(self, child: Tensor) -> Tensor:
        return F.one_hot(child, self.branching).to(self.W[0].weight.dtype)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Batch:
    """One worker's share of a batch: vectors (M) and path embeddings (T) of queries, answers and other documents."""

    query_NM: Tensor
    positive_NM: Tensor
    hard_NM: Tensor | None
    hard_N: Tensor | None
    """Booleans [n], True if a query has a mined negative. `hard` rows of other queries are ignored."""
    query_NT: Tensor
    positive_NT: Tensor
    document_DM: Tensor
    document_DT: Tensor
    negative_ND: Tensor
    """Booleans [n, d], True if the document is a negative of the query: not known as the query's answer."""
    pairs: Tensor
    hard: Tensor


@dataclass(frozen=True)
class Losses:
    semantic: Tensor
    indexing: Tensor
    intra_leaf: Tensor
    total: Tensor


def ehi_losses(batch: Batch, spec: Loss) -> Losses:
    """Compute EHI's loss (Eq. 6) and its parts: λ1·semantic + λ2·indexing + λ3·intra-leaf, with the weights of `spec`.

    Semantic: triplets on vectors. Indexing: triplets on paths. Intra-leaf: keeps unlike documents out of one leaf.
    """
    semantic = semantic_loss(batch, MARGIN)
    indexing = indexing_loss(batch, MARGIN)
    unlike_ND = unlike_pairs(batch, UNLIKE)
    as_triplet = spec.intra_leaf_form == "triplet"
    intra_leaf = intra_leaf_triplet(batch, unlike_ND, MARGIN) if as_triplet else intra_leaf_product(batch, unlike_ND)
    total = spec.semantic * semantic + spec.indexing * indexing + spec.intra_leaf * intra_leaf
    return Losses(semantic, indexing, intra_leaf, total)


def semantic_loss(batch: Batch, margin: float) -> Tensor:
    """Compute the mean triplet loss on encoder vectors (Eq. 2), over in-batch and mined negatives."""
    scores = batch.query_NM @ batch.document_DM.T
    valid = batch.negative_ND
    if batch.hard_NM is not None and batch.hard_N is not None:
        scores = torch.cat([scores, _rowwise(batch.query_NM, batch.hard_NM)], dim=1)
        valid = torch.cat([valid, batch.hard_N.unsqueeze(1)], dim=1)
    positive_N1 = _rowwise(batch.query_NM, batch.positive_NM)
    return triplet(scores, positive_N1, valid, margin) / (batch.pairs + batch.hard).clamp(min=1)


def indexing_loss(batch: Batch, margin: float) -> Tensor:
    """Compute the mean triplet loss on path embeddings (Eq. 5), over in-batch negatives only."""
    positive_N1 = _rowwise(batch.query_NT, batch.positive_NT)
    scores_ND = batch.query_NT @ batch.document_DT.T
    return triplet(scores_ND, positive_N1, batch.negative_ND, margin) / batch.pairs.clamp(min=1)


def triplet(scores_NC: Tensor, positive_N1: Tensor, valid_NC: Tensor, margin: float) -> Tensor:
    """Sum max(0, score of candidate - score of positive + margin) over the candidates that `valid_NC` marks.

    >>> scores = torch.tensor([[0.9, 0.7], [0.1, 0.5]])
    >>> triplet(scores, scores.diagonal().unsqueeze(1), ~torch.eye(2, dtype=torch.bool), 0.3)
    tensor(0.1000)
    """
    return (F.relu(scores_NC - positive_N1 + margin) * valid_NC).sum()


@torch.no_grad()
def unlike_pairs(batch: Batch, unlike: float) -> Tensor:
    """Mark [n, d] documents that are negatives of a query, and whose cosine to its answer is less than `unlike`."""
    cosine_ND = F.normalize(batch.positive_NM, dim=-1) @ F.normalize(batch.document_DM, dim=-1).T
    return (cosine_ND < unlike) & batch.negative_ND


def intra_leaf_product(batch: Batch, unlike_ND: Tensor) -> Tensor:
    """Compute the mean inner product of path embeddings of answers and unlike documents (Eq. 5)."""
    return (batch.positive_NT @ batch.document_DT.T * unlike_ND).sum() / batch.pairs.clamp(min=1)


def intra_leaf_triplet(batch: Batch, unlike_ND: Tensor, margin: float) -> Tensor:
    """Compute the mean triplet loss of unlike documents (Algorithm 1). The answer is both anchor and positive."""
    own_N1 = _rowwise(batch.positive_NT, batch.positive_NT)
    return triplet(batch.positive_NT @ batch.document_DT.T, own_N1, unlike_ND, margin) / batch.pairs.clamp(min=1)


def _rowwise(a_NX: Tensor, b_NX: Tensor) -> Tensor:
    return (a_NX * b_NX).sum(1, keepdim=True)
