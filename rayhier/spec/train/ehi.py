"""`train: {type: ehi}`: encoder and tree learn together, by a sum of three losses.

Kumar et al., "End-to-end Learning of Hierarchical Index for Efficient Dense Retrieval", Eq. 2-6 and Algorithm 1.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Rate, Section, Weight
from rayhier.spec.train.common import Training

MARGIN = 0.3
UNLIKE = 0.9
"""Similarity τ below which two documents count as unlike."""


class Loss(Section):
    """Weights λ of EHI's three losses. The paper's Table 8 tunes the weights for each collection."""

    semantic: Weight = 1.0
    """Weight λ1 of the triplet loss on the encoder's vectors."""
    indexing: Weight = 1.0
    """Weight λ2 of the triplet loss on path embeddings, the tree's probabilities on a text's path."""
    intra_leaf: Weight = 1.0
    """Weight λ3 of the loss for unlike documents in the same leaf."""
    intra_leaf_form: Literal["product", "triplet"] = "product"
    """Form of the loss for unlike documents in the same leaf. `product`: T(d+)·T(d-), as in Eq. 5. `triplet`:
    [T(d+)·T(d-) - T(d+)·T(d+) + γ]+, as in Algorithm 1. T are path embeddings of an answer d+ and an unlike document
    d-, and γ is the margin."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.semantic == self.indexing == self.intra_leaf == 0:
            raise ValueError("semantic, indexing or intra_leaf above 0: with none of them nothing is learned")
        return self


class EhiNegatives(Section):
    """Mining of one hard negative for each query, found with the current encoder and tree."""

    source: Literal["query_leaves", "positive_leaf", "exact", "none"] = "query_leaves"
    """Documents from which hard negatives are taken. `query_leaves`: documents in leaves that the query visits
    (Algorithm 1). `positive_leaf`: documents in the leaf of the query's document (Appendix C.2). `exact`: all documents
    (as in ANCE, Table 12). `none`: nothing is mined."""


class EhiTraining(Training):
    """EHI's training: triplets on vectors and on paths. Unlike documents are driven into different leaves."""

    type: Literal["ehi"]
    epochs: Annotated[int, Field(ge=1, le=100_000)] = 20
    """Number of passes over the training pairs."""
    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 64
    """Number of pairs in a training step, of all workers together."""
    encoder_lr: Rate = 1e-3
    """Learning rate of the encoder, by AdamW with weight decay 0.01, torch's default."""
    router_lr: Rate = 3e-3
    """Learning rate of the router, by AdamW with weight decay 0.01, torch's default."""
    loss: Loss = Loss()
    """Weights of the three losses, and the form of the third."""
    hard_negatives: EhiNegatives = EhiNegatives()
    """Mining of hard negatives for the triplets."""

    @property
    def routes(self) -> bool:
        return True

    def phases(self, pairs: int, documents: int) -> dict[str, int]:  # noqa: ARG002  both teach it
        return {"joint": self.epochs}
