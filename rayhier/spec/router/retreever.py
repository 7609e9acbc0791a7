"""`router: {type: retreever}`: a perfect binary tree whose splits give the probability of each node for a text.

"ReTreever: Tree-based Coarse-to-Fine Representations for Retrieval" (Gupta et al., 2025).
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.router.common import Reads, Routing

Splits = Literal["linear", "mlp", "attention"]
Aggregation = Literal["shared", "linear", "ancestors"]
DEEPEST_ATTENTION = 12
"""Largest number of levels of a tree with attention. The outputs for a batch of texts, 512 numbers a split, must fit in
memory."""


class RetreeverRouting(Routing):
    """ReTreever's router: a binary tree with 2^depth leaves. Probabilities of a level's nodes represent a text."""

    type: Literal["retreever"]
    depth: Annotated[int, Field(ge=1, le=16)] = 10
    """Number of levels below the root, D. The tree has 2^D leaves."""
    splits: Splits = "linear"
    """Model by which an inner node splits texts. `linear`: a hyperplane over texts' vectors. `mlp`: a hyperplane over
    128 hidden units that all nodes share. `attention` (the paper): attention to token vectors, slow without a GPU."""
    aggregation: Aggregation = "ancestors"
    """Function that makes attention's outputs a node's score. `shared`: one linear map for all nodes. `linear`: a map
    for each node. `ancestors`: as `linear`, then a small MLP over the scores of the node and its ancestors."""
    propagation: Literal["product", "learned"] = "product"
    """Probability of a leaf. `product`: product of splits on its path. `learned`: a product that an MLP corrects."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the nodes' scores that a training step leaves out at random."""

    @model_validator(mode="after")
    def _attention_aggregates(self) -> Self:
        if self.splits != "attention":
            self.refuse("aggregation", where="only if splits is attention")
        elif self.depth > DEEPEST_ATTENTION:
            raise ValueError(f"depth of at most {DEEPEST_ATTENTION} if splits is attention")
        return self

    @property
    def reads(self) -> Reads:
        return "tokens" if self.splits == "attention" else "vectors"

    @property
    def leaves(self) -> int:
        return int(2**self.depth)

    @property
    def sidecar_bytes(self) -> int:
        return 2 * self.leaves
