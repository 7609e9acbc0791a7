"""EHI's losses (Eq. 2-6), averaged over all (query, negative document) pairs of the batch.

One worker's share of a batch is N pairs, the rows; the documents of all workers' pairs are the D columns. Each part of
the loss is the share's sum over the whole batch's count, so that the workers' losses and gradients add up.

Shapes: N pairs of this worker, D pairs of the batch, M embedding size, T size of a path embedding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.spec.train.ehi import Loss


@dataclass(frozen=True)
class Batch:
    """One worker's share of a batch: vectors (M) and path embeddings (T) of queries, answers and other documents."""

    query_NM: Tensor
    positive_NM: Tensor
    hard_NM: Tensor | None
    """Vector [n, m] of a mined negative document for each query."""
    hard_N: Tensor | None
    """Booleans [n], True where a query has a mined negative; rows without it are ignored."""
    query_NT: Tensor
    positive_NT: Tensor
    document_DM: Tensor
    """Vectors [d, m] of the answers in the whole batch, all workers' together."""
    document_DT: Tensor
    negative_ND: Tensor
    """Booleans [n, d], True where document j is a negative of query i: not known as its answer."""
    pairs: Tensor
    """Number of (query, negative) pairs in the whole batch, without mined negatives."""
    hard: Tensor
    """Number of mined negatives in the whole batch."""


@dataclass(frozen=True)
class Losses:
    """EHI's three losses before weighting, and their weighted sum."""

    semantic: Tensor
    indexing: Tensor
    intra_leaf: Tensor
    total: Tensor


def ehi_losses(batch: Batch, spec: Loss) -> Losses:
    """Compute EHI's loss (Eq. 6) and its parts: λ1·semantic + λ2·indexing + λ3·intra-leaf, with the weights of `spec`.

    Semantic: triplets on encoder vectors. Indexing: triplets on path embeddings. Intra-leaf: keeps documents that are
    not similar out of the same leaf.
    """
    semantic = semantic_loss(batch, spec.margin)
    indexing = indexing_loss(batch, spec.margin)
    intra_leaf = intra_leaf_loss(batch, spec)
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
    """Sum [s_ic - s_i+ + margin]_+ over the valid (i, c): scores of row i's candidates against its positive's score.

    >>> scores = torch.tensor([[0.9, 0.7], [0.1, 0.5]])
    >>> triplet(scores, scores.diagonal().unsqueeze(1), ~torch.eye(2, dtype=torch.bool), 0.3)
    tensor(0.1000)
    """
    return (F.relu(scores_NC - positive_N1 + margin) * valid_NC).sum()


def intra_leaf_loss(batch: Batch, spec: Loss) -> Tensor:
    """Compute the mean loss of documents that are less similar than τ (`spec.unlike`) but lie in the same leaf.

    Eq. 5: 1[cos(E(d+), E(d-)) < τ]·T(d+)·T(d-).
    """
    with torch.no_grad():
        cosine_ND = F.normalize(batch.positive_NM, dim=-1) @ F.normalize(batch.document_DM, dim=-1).T
    shared_ND = batch.positive_NT @ batch.document_DT.T
    return (shared_ND * (cosine_ND < spec.unlike) * batch.negative_ND).sum() / batch.pairs.clamp(min=1)


def _rowwise(a_NX: Tensor, b_NX: Tensor) -> Tensor:
    return (a_NX * b_NX).sum(1, keepdim=True)
