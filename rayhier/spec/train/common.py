"""Settings that trainings share: epochs, batches, documents kept in memory, measurements on dev, hard negatives."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Rate, Section, Weight
from rayhier.spec.train.generated import GeneratedSpec
from rayhier.spec.train.pseudo_queries import PseudoQueries

STEPS, FEWEST_EPOCHS = 300, 10
"""Least steps of automatic epochs, and least number of such epochs."""
MEASUREMENTS = 20
"""Measurements on dev where `measure_every` is auto."""


class Training(Section):
    """Training over pairs of a query and a document."""

    objective: Literal["auto", "supervised", "documents"] = "auto"
    """Source of the pairs. `supervised`: train judgements. `documents`: each document is a query for its nearest
    neighbours. `auto`: supervised where train judgements exist, else documents."""
    epochs: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Passes over the training pairs."""
    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 256
    """Pairs of a training step, on all workers together."""
    micro_batch: Annotated[int, Field(ge=1)] | None = None
    """Most texts whose activations a worker keeps in memory at a time. Each text is then encoded twice and gradients
    are cached: the same gradients, and batch 4096 fits one GPU. None: a worker's whole share of a batch at once."""
    most_documents: Annotated[int, Field(ge=1_000)] = 1_000_000
    """Most documents that training keeps in memory with their vectors: all documents of its pairs, and others up to
    this number, drawn by a hash of the id. The index holds all documents."""
    measure_every: Annotated[int, Field(ge=1)] = 1
    """Epochs between two measurements on dev; each encodes every document, with ehi also routes it. The last epoch
    is always measured."""

    def passes(self, pairs: int) -> int:  # noqa: ARG002  most trainings say how many
        """Return the number of passes over a number of training pairs."""
        return self.epochs

    def between(self, epochs: int) -> int:  # noqa: ARG002  most trainings say how many
        """Epochs between two measurements, of a number of epochs in all."""
        return self.measure_every

    @property
    def draws(self) -> PseudoQueries | None:
        """Pseudo-queries that the embed step draws and encodes: none."""
        return None

    @property
    def does_without_draws(self) -> bool:
        """Return True if training by pairs goes on where no document has a pseudo-query."""
        return True

    @property
    def needs_differences(self) -> bool:
        """Return True if training needs documents that differ; False by default."""
        return False

    @property
    def generation(self) -> GeneratedSpec | None:
        """Generated pairs to train on in addition to judged pairs; None by default."""
        return None

    def check_documents(self, documents: int) -> None:
        """Raise InputError where training cannot use this number of documents; never by default."""


class Mining(Section):
    """Mining of hard negatives (wrong documents that look right): when, and from how many to draw."""

    source: str
    """Where hard negatives are taken from; with `none` nothing is mined."""
    top: Annotated[int, Field(ge=1, le=1000)] = 10
    """Best wrong documents of a query, from which negatives are drawn uniformly."""
    refresh: Annotated[int, Field(ge=1)] = 5
    """Epochs or steps (see `unit`) after which hard negatives are mined again."""
    unit: Literal["epochs", "steps"] = "epochs"
    """Unit of `refresh`: section 3.5 of the EHI paper says steps, its Table 8 reads as epochs."""

    @model_validator(mode="after")
    def _mined_at_all(self) -> Self:
        if self.source == "none":
            self.refuse("top", "refresh", "unit", where="only where source is not none")
        return self


class ExactNegatives(Mining):
    """Mined negatives of each query, drawn from its best wrong documents."""

    source: Literal["exact", "none"] = "exact"
    """`exact`: found among all documents by an exact search (as in ANCE). `none`: only the batch's other documents."""
    per_query: Annotated[int, Field(ge=1, le=100)] = 2
    """Mined negatives of a query in a step; fewer than `top` where the query has fewer wrong documents."""

    @model_validator(mode="after")
    def _drawn_from_enough(self) -> Self:
        if self.source == "none":
            self.refuse("per_query", where="only where source is not none")
        elif self.per_query > self.top:
            raise ValueError(f"per_query at most top: {self.per_query} are drawn from {self.top}")
        return self


class InfoNce(Training):
    """Trainings of the encoder by InfoNCE over a batch's documents and mined hard negatives."""

    epochs: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"  # type: ignore[assignment]
    """Passes over the training pairs. `auto`: as many as make 300 steps, at least 10: for a small corpus the number of
    steps counts, not of epochs."""
    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 256
    """Pairs of a training step, on all workers together."""
    encoder_lr: Rate = 1e-3
    """Learning rate of the optimizer, falling to zero."""
    measure_every: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"  # type: ignore[assignment]
    """Epochs between two measurements on dev; each encodes every document. The last epoch is always measured. `auto`:
    twenty measurements, or one an epoch where there are fewer epochs."""
    temperature: Annotated[float, Field(gt=0, le=10)] = 0.05
    """Number by which scores are divided before the softmax."""
    hard_negatives: ExactNegatives = ExactNegatives()
    """Mined hard negatives."""
    anchor: Weight = 4.0
    """Weight of the loss that keeps documents near their base vectors (ours): the mean of 1 - cosine over documents
    drawn for each step. Without this loss, answers of train queries move away from all other documents."""

    def passes(self, pairs: int) -> int:
        """Number of passes over a number of training pairs."""
        if self.epochs != "auto":
            return self.epochs
        return max(FEWEST_EPOCHS, math.ceil(STEPS / max(1, math.ceil(pairs / self.batch_size))))

    def between(self, epochs: int) -> int:
        """Epochs between two measurements, of a number of epochs in all."""
        return math.ceil(epochs / MEASUREMENTS) if self.measure_every == "auto" else self.measure_every
