"""`train: {type: retreever}`: a tree learns whose nodes represent a text, coarsely and finely.

"ReTreever: Tree-based Coarse-to-Fine Representations for Retrieval" (Gupta et al., 2025).
"""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Rate, Weight
from rayhier.spec.router.retreever import Splits
from rayhier.spec.train.common import MEASUREMENTS, Training
from rayhier.spec.train.contrast import ContrastTraining

STEPS, FEWEST = 3_000, 5
"""Least steps, and least passes, of automatic epochs."""
Schedule = Literal["constant", "linear", "exponential", "stochastic", "matryoshka"]
Comparison = Literal["tv", "cosine"]
ANCHOR = 1_000.0
"""Weight of the anchor of linear splits where it is automatic."""
STARTS: dict[Splits, tuple[str, ...]] = {
    "linear": ("auto", "random", "mrl", "kmeans"),
    "mlp": ("auto", "random", "mrl"),
    "attention": ("auto", "random"),
}
"""Starts of a retreever router's splits, by their kind."""


class RetreeverTraining(Training):
    """Symmetric InfoNCE over a batch, at levels of a tree; the encoder learns first, by contrast, or stays as it is."""

    type: Literal["retreever"]
    epochs: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"  # type: ignore[assignment]
    """Passes over the training pairs in which the tree learns. `auto`: as many as make 3,000 steps, at least 5."""
    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 128
    """Pairs of a training step, on all workers together."""
    router_lr: Rate = 3e-3
    """Learning rate of the tree (AdamW), which rises over a twentieth of the steps, then falls to zero."""
    measure_every: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"  # type: ignore[assignment]
    """Epochs between two measurements on dev. The last epoch is always measured. `auto`: twenty measurements, or one
    an epoch where there are fewer epochs."""
    reads: Literal["auto", "base", "trained"] = "auto"
    """Encoder of the vectors, or tokens, that the tree reads. `trained`: the encoder learns first, by contrast, in a
    separate phase. `base`: the encoder does not learn. `auto`: by `encoder.train`."""
    schedule: Schedule = "matryoshka"
    """Levels that learn. `constant`: the leaves alone. `linear`, `exponential`: a level that deepens with the steps.
    `stochastic`: in each step one level d, drawn in proportion to d². `matryoshka`: all at once."""
    similarity: Comparison = "cosine"
    """How two texts are compared at a level of 2^h nodes. `tv`: by the paper's total variation -½‖p - q‖₁ of their
    distributions. `cosine`: of 2^h p - 1 (ours)."""
    documents: Weight = 1.0
    """Documents used as queries in addition to judged ones, each for one of its three nearest, as a multiple of the
    judged pairs (ours). 0: none."""
    anchor: Weight | Literal["auto"] = "auto"
    """Weight of the mean squared differences, within a batch, between cosines of the deepest level and of the encoder's
    vectors, among queries, among documents and between both: so the tree keeps similarities that the training pairs do
    not show (ours). 0: none; `tv` has none. `auto`: 1,000 for linear splits; others cannot keep these cosines, and have
    none."""
    start: Literal["auto", "random", "mrl", "kmeans"] = "auto"
    """Directions of the splits at the start. `mrl`: those of a Matryoshka adapter that is trained first, the most
    important nearest to the root (ours). `kmeans`: from one half of a node's documents to the other. `auto`: mrl, for
    splits by attention random."""
    scale: Annotated[float, Field(gt=0, le=10_000)] | Literal["auto"] = "auto"
    """First value of the learned factor of similarities before the softmax. `auto`: 300 for tv, 20 for cosine."""
    most_scale: Annotated[float, Field(gt=0, le=10_000)] | Literal["auto"] = "auto"
    """Greatest value of the factor of similarities. `auto`: 10,000 for tv, 100 for cosine."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.similarity == "tv":
            self.refuse("anchor", where="only where similarity is cosine")
        start, most = self.scales(self.similarity)
        if start > most:
            raise ValueError(f"scale at most most_scale ({most:g})")
        if self.objective == "documents":
            self.refuse("documents", where="only where judged queries ask too, not with objective documents")
            if self.reads == "trained":
                raise ValueError("reads auto or base with objective documents, by which no encoder learns")
        return self

    def passes(self, pairs: int) -> int:
        """Number of passes over a number of training pairs."""
        if self.epochs != "auto":
            return self.epochs
        return max(FEWEST, math.ceil(STEPS / max(1, math.ceil(pairs / self.batch_size))))

    def between(self, epochs: int) -> int:
        """Epochs between two measurements, of a number of epochs in all."""
        return math.ceil(epochs / MEASUREMENTS) if self.measure_every == "auto" else self.measure_every

    def scales(self, similarity: Comparison) -> tuple[float, float]:
        """Return the softmax's first scale and its limit; `scale` and `most_scale` count for the tree's similarity."""
        start, most = (300.0, 10_000.0) if similarity == "tv" else (20.0, 100.0)
        if similarity != self.similarity:
            return start, most
        return (
            start if self.scale == "auto" else self.scale,
            most if self.most_scale == "auto" else self.most_scale,
        )

    def held(self, splits: str) -> float:
        """Return the weight of the anchor of a tree whose splits are of a kind."""
        if self.similarity == "tv":
            return 0.0
        if self.anchor != "auto":
            return self.anchor
        return ANCHOR if splits == "linear" else 0.0

    @property
    def contrast(self) -> ContrastTraining:
        """Training of the encoder before the tree: the shipped contrast."""
        return ContrastTraining(
            type="contrast",
            objective="auto" if self.objective == "documents" else self.objective,
            micro_batch=self.micro_batch,
            most_documents=self.most_documents,
        )

    @property
    def routes(self) -> bool:
        """Return True: training teaches the router, by documents as queries where judgements are missing."""
        return True

    @property
    def needs_judgements(self) -> bool:
        """Return False: the tree is trained without train judgements too."""
        return False

    @property
    def needs_differences(self) -> bool:
        """Return True: training needs documents that differ, as no split separates equal ones."""
        return True

    def phases(self, pairs: int, documents: int) -> dict[str, int]:
        """Phases of training, name -> epochs: the encoder's with judged pairs, a start's adapter, the tree."""
        passes = self.passes(pairs or documents)
        encoder = {"encoder": self.contrast.passes(pairs)} if pairs and self.reads != "base" else {}
        return {**encoder, **({"adapter": passes} if self.start in ("auto", "mrl") else {}), "tree": passes}
