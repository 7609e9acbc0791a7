"""EHI's losses (Eq. 2-6), averaged over all valid (query, other document) pairs of the batch.

Shapes: N pairs a batch, M embedding size, T size of a path embedding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.spec.train import Loss


@dataclass(frozen=True)
class Batch:
    """What the losses of one step read."""

    query_NM: Tensor
    positive_NM: Tensor
    hard_NM: Tensor | None
    """One mined negative a query."""
    hard_N: Tensor | None
    """Whether there is one: bool."""
    query_NT: Tensor
    positive_NT: Tensor
    negative_NN: Tensor
    """Whether document j is a negative of query i: every other one that is not a known positive."""


@dataclass(frozen=True)
class Losses:
    """The three parts, before their weights, and the weighted sum."""

    semantic: Tensor
    indexing: Tensor
    intra_leaf: Tensor
    total: Tensor


def ehi_losses(batch: Batch, spec: Loss) -> Losses:
    """L = λ1·tri(E(q), E(d+), E(d-)) + λ2·tri(T(q), T(d+), T(d-)) + λ3·(unlike documents apart), Eq. 6."""
    semantic = semantic_loss(batch, spec.margin)
    indexing = triplet(batch.query_NT @ batch.positive_NT.T, batch.negative_NN, spec.margin)
    intra_leaf = intra_leaf_loss(batch, spec)
    total = spec.semantic * semantic + spec.indexing * indexing + spec.intra_leaf * intra_leaf
    return Losses(semantic, indexing, intra_leaf, total)


def semantic_loss(batch: Batch, margin: float) -> Tensor:
    """Triplets on encoder vectors (Eq. 2); the mined negative of a query is one more column of its row."""
    scores_NN = batch.query_NM @ batch.positive_NM.T
    valid_NN = batch.negative_NN
    if batch.hard_NM is None or batch.hard_N is None:
        return triplet(scores_NN, valid_NN, margin)
    hard_N1 = (batch.query_NM * batch.hard_NM).sum(1, keepdim=True)
    scores = torch.cat([scores_NN, hard_N1], dim=1)
    return triplet(scores, torch.cat([valid_NN, batch.hard_N.unsqueeze(1)], dim=1), margin)


def triplet(scores_NC: Tensor, valid_NC: Tensor, margin: float) -> Tensor:
    """Mean of [s_ic - s_ii + margin]_+ over the valid (i, c); column i holds the positive of row i.

    >>> triplet(torch.tensor([[0.9, 0.7], [0.1, 0.5]]), ~torch.eye(2, dtype=torch.bool), 0.3)
    tensor(0.0500)
    """
    positive_N1 = scores_NC.diagonal().unsqueeze(1)
    return _mean(F.relu(scores_NC - positive_N1 + margin), valid_NC)


def intra_leaf_loss(batch: Batch, spec: Loss) -> Tensor:
    """Documents less similar than τ must not share a leaf.

    `product` (Eq. 5): 1[cos(E(d+), E(d-)) < τ]·T(d+)·T(d-).
    `triplet` (Algorithm 1, our reading): the same gate on [T(d+)·T(d-) - T(q)·T(d+) + γ]_+.
    """
    unlike_NN = (batch.positive_NM @ batch.positive_NM.T).detach() < spec.unlike
    shared_NN = batch.positive_NT @ batch.positive_NT.T
    if spec.intra_leaf_form == "triplet":
        own_N1 = (batch.query_NT * batch.positive_NT).sum(1, keepdim=True)
        shared_NN = F.relu(shared_NN - own_N1 + spec.margin)
    return _mean(shared_NN * unlike_NN, batch.negative_NN)


def _mean(values: Tensor, valid: Tensor) -> Tensor:
    return (values * valid).sum() / valid.sum().clamp(min=1)
