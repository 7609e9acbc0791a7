"""`router: {type: retreever}`: a perfect binary tree whose splits give the probability of each node for a text.

"ReTreever: Tree-based Coarse-to-Fine Representations for Retrieval" (Gupta et al., 2025).
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.router.common import Reads, Routing

Splits = Literal["linear", "mlp", "attention"]
Aggregation = Literal["shared", "linear", "ancestors"]
DEEPEST_ATTENTION = 12
"""Depth up to which the outputs of attention, 512 numbers a split, of a batch of texts fit in memory."""


class RetreeverRouting(Routing):
    """2^depth leaves; the distribution over a level's nodes represents a text in as many numbers."""

    type: Literal["retreever"]
    depth: Annotated[int, Field(ge=1, le=16)] = 10
    """Levels below the root, D. The tree has 2^D leaves."""
    splits: Splits = "linear"
    """How an inner node splits texts. `linear`: by a hyperplane over their vectors. `mlp`: over 128 hidden units that
    all nodes share. `attention`: by attention to the vectors of their tokens, as in the paper; slow without a GPU."""
    aggregation: Aggregation = "ancestors"
    """How attention's outputs become a node's score. `shared`: by one linear map. `linear`: by one for each node.
    `ancestors`: and a small MLP over the scores of the node and its ancestors."""
    propagation: Literal["product", "learned"] = "product"
    """Probability of a leaf. `product`: of the splits on its path. `learned`: by an MLP over these too."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the nodes' scores that a training step leaves out."""

    @model_validator(mode="after")
    def _attention_aggregates(self) -> Self:
        if self.splits != "attention":
            self.refuse("aggregation", where="only where splits is attention")
        elif self.depth > DEEPEST_ATTENTION:
            raise ValueError(f"depth at most {DEEPEST_ATTENTION} where splits is attention")
        return self

    @property
    def reads(self) -> Reads:
        """Part of an encoded text that routing needs."""
        return "tokens" if self.splits == "attention" else "vectors"

    @property
    def leaves(self) -> int:
        """Number of leaves, 2^D."""
        return int(2**self.depth)

    @property
    def sidecar_bytes(self) -> int:
        """Bytes of a document in sidecars of the leaf map: a float16 for each leaf."""
        return 2 * self.leaves

    def multiply_adds(self, leaves: int, dimension: int) -> float:
        """Multiply-adds of routing one vector: every split's hyperplane, or those over the hidden units."""
        return float(dimension * (leaves - 1)) if self.splits == "linear" else float(128 * (dimension + leaves - 1))
