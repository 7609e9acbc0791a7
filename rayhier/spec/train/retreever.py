"""`train: {type: retreever}`: a binary tree learns to represent texts by the probabilities of its nodes.

"ReTreever: Tree-based Coarse-to-Fine Representations for Retrieval" (Gupta et al., 2025).
"""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Rate, Weight
from rayhier.spec.router.retreever import Splits
from rayhier.spec.train.common import Training
from rayhier.spec.train.contrast import ContrastTraining

Schedule = Literal["constant", "linear", "exponential", "stochastic", "matryoshka"]
Comparison = Literal["tv", "cosine"]
ANCHOR = 1_000.0
"""Weight of the anchor loss if it is automatic and splits are linear."""
STARTS: dict[Splits, tuple[str, ...]] = {
    "linear": ("auto", "random", "mrl", "kmeans"),
    "mlp": ("auto", "random", "mrl"),
    "attention": ("auto", "random"),
}
"""Kind of a ReTreever router's splits -> allowed values of `start`."""


class RetreeverTraining(Training):
    """ReTreever's training: symmetric InfoNCE at levels of a tree. The encoder may learn before the tree."""

    least: ClassVar[tuple[int, int]] = 3_000, 5
    type: Literal["retreever"]
    epochs: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"
    """Number of passes over the training pairs in which the tree learns. `auto`: enough for 3,000 steps, at least 5."""
    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 128
    """Number of pairs in a training step, of all workers together."""
    router_lr: Rate = 3e-3
    """Highest learning rate of the tree (AdamW). The rate rises in the first twentieth of steps, then falls to zero."""
    schedule: Schedule = "matryoshka"
    """Levels of the tree that a step trains. `constant`: only the leaves. `linear`, `exponential`: one level, deeper
    in later steps. `stochastic`: one level d, drawn in proportion to d². `matryoshka`: all levels at once."""
    similarity: Comparison = "cosine"
    """Similarity of two texts at a level of 2^h nodes, from their probabilities p and q. `tv`: the paper's total
    variation, -½‖p - q‖₁. `cosine`: cosine of 2^h p - 1 and 2^h q - 1 (our addition)."""
    documents: Weight = 1.0
    """Number of documents used as queries in addition to judged queries, as a multiple of the judged pairs. The answer
    is one of a document's three nearest documents (our addition). 0: none."""
    anchor: Weight | Literal["auto"] = "auto"
    """Weight of a loss that keeps similarities which the training pairs do not show (our addition). The loss is the
    mean squared difference between cosines of the deepest level and of the encoder's vectors, over a batch. 0, or
    similarity `tv`: no such loss. `auto`: 1,000 for linear splits, 0 for other splits, which cannot keep cosines."""
    start: Literal["auto", "random", "mrl", "kmeans"] = "auto"
    """Directions of the splits at the start. `mrl`: directions of a Matryoshka adapter that is trained before, the most
    important nearest to the root (our addition). `kmeans`: from one half of a node's documents to the other half.
    `random`: random. `auto`: random for splits by attention, else mrl."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.similarity == "tv":
            self.refuse("anchor", where="only if similarity is cosine")
        if self.objective == "documents":
            self.refuse("documents", where="only if judged queries train too, not with objective documents")
        return self

    def held(self, splits: str) -> float:
        """Return the weight of the anchor loss for a kind of splits. 0 means no such loss."""
        if self.similarity == "tv":
            return 0.0
        if self.anchor != "auto":
            return self.anchor
        return ANCHOR if splits == "linear" else 0.0

    @property
    def contrast(self) -> ContrastTraining:
        """Settings of the encoder's training before the tree: the defaults of contrast, by judged pairs alone."""
        return ContrastTraining(
            type="contrast",
            objective="supervised",
        )

    @property
    def routes(self) -> bool:
        return True

    @property
    def needs_differences(self) -> bool:
        return True

    def phases(self, pairs: int, documents: int) -> dict[str, int]:
        """Return the phases, name -> epochs. Without judged pairs, the number of documents sets the epochs."""
        passes = self.passes(pairs or documents)
        encoder = {"encoder": self.contrast.passes(pairs)} if pairs else {}
        return {**encoder, **({"adapter": passes} if self.start in ("auto", "mrl") else {}), "tree": passes}
