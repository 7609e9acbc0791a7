"""Settings that all trainings share: epochs, batches, measurements on dev, hard negatives."""

import math
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Rate, Section, Weight
from rayhier.spec.train.pseudo_queries import MOST_DRAWN, PseudoQueries

MINED = 10
"""Number of a query's best wrong documents, from which its hard negatives are drawn at random."""
REFRESH = 5
"""Number of epochs after which hard negatives (wrong documents that score high for a query) are mined again."""
PAIRED = "only if objective is not documents, which reads no judged or generated pairs"
MEASUREMENTS = 20
"""Largest number of measurements on dev. A measurement encodes all documents. With fewer epochs, each epoch is
measured."""


class Training(Section):
    """Settings of a training over pairs of a query and a document."""

    objective: Literal["auto", "supervised", "documents"] = "auto"
    """Source of the pairs. `supervised`: train judgements. `documents`: each document is a query, and its nearest
    documents are its answers. `auto`: supervised if train judgements exist, else documents."""
    epochs: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"
    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 256
    """Number of pairs in a training step, of all workers together."""

    least: ClassVar[tuple[int, int]] = 300, 10
    """Least training steps and least epochs if `epochs` is auto."""

    def passes(self, pairs: int) -> int:
        if self.epochs != "auto":
            return self.epochs
        steps, epochs = self.least
        return max(epochs, math.ceil(steps / max(1, math.ceil(pairs / self.batch_size))))

    def between(self, epochs: int) -> int:
        """Return the number of epochs between two measurements on dev, in a training of `epochs` epochs."""
        return math.ceil(epochs / MEASUREMENTS)

    @property
    def routes(self) -> bool:
        """Return True if the pairs train the router too. By default False."""
        return False

    @property
    def draws(self) -> PseudoQueries | None:
        """Settings of the pseudo-queries that the embed stage draws and encodes. By default None."""
        return None

    @property
    def does_without_draws(self) -> bool:
        """Return True if training can use pairs alone. Else a run without pseudo-queries is refused."""
        return True

    @property
    def needs_differences(self) -> bool:
        """Return True if training fails when all documents have the same vector. By default False."""
        return False

    @property
    def generation(self) -> str | None:
        """File of generated pairs, which are trained on in addition to judged pairs. By default None."""
        return None

    def check_documents(self, documents: int) -> None:
        """Raise InputError if `documents` documents are too few to train. By default, any number is enough."""


class ExactNegatives(Section):
    """Mining of hard negatives, which are drawn from the best wrong documents of each query in an exact search."""

    source: Literal["exact", "none"] = "exact"
    """Source of negatives. `exact`: hard negatives are mined among all documents (as in ANCE). `none`: negatives are
    only the other documents of the batch."""
    per_query: Annotated[int, Field(ge=1, le=MINED)] = 2
    """Number of hard negatives of a query in a step. Queries with fewer wrong documents have fewer."""

    @model_validator(mode="after")
    def _drawn_from_enough(self) -> Self:
        if self.source == "none":
            self.refuse("per_query", where="only if source is not none")
        return self


class InfoNce(Training):
    """Settings of trainings by InfoNCE, with a batch's other documents and mined hard negatives as negatives."""

    objective: Literal["auto", "supervised", "documents", "joint"] = "auto"  # type: ignore[assignment]
    """Source of the pairs. `supervised`: train judgements and generated pairs. `documents`: pseudo-queries and their
    documents. `joint`: both, but pseudo-queries have half the weight. `auto`: joint if there are train judgements or
    generated pairs, else documents."""
    pseudo_queries: PseudoQueries = PseudoQueries()
    epochs: Annotated[int, Field(ge=1, le=100_000)] | Literal["auto"] = "auto"
    """Number of passes over the training pairs. `auto`: as many as make 300 steps, at least 10 passes. On a small
    corpus, the number of steps matters, and not the number of passes."""
    encoder_lr: Rate = 1e-3
    """First learning rate of the encoder's optimizer. The rate falls to zero."""
    temperature: Annotated[float, Field(gt=0, le=10)] = 0.05
    """Number by which scores are divided before the softmax of the loss."""
    hard_negatives: ExactNegatives = ExactNegatives()
    """Mining of hard negatives (wrong documents that score high), in addition to the batch's documents."""
    anchor: Weight = 4.0
    """Weight of a loss that keeps documents near their base vectors (our addition). The loss is the mean of 1 - cosine
    over documents drawn for each step. Without this loss, answers of train queries move away from all documents."""

    @model_validator(mode="after")
    def _pairs_count(self) -> Self:
        if self.objective == "documents":
            self.refuse("hard_negatives", where=PAIRED)
        if self.objective == "supervised":
            self.refuse("pseudo_queries", where="only if objective is not supervised")
        return self

    @property
    def whitens(self) -> bool:
        """Return True if pseudo-queries whiten a head before it is trained (`rayhier.train.whiten`)."""
        return True

    @property
    def draws(self) -> PseudoQueries | None:
        return None if self.objective == "supervised" else self.pseudo_queries

    @property
    def does_without_draws(self) -> bool:
        return self.objective == "auto"

    def phases(self, pairs: int, documents: int) -> dict[str, int]:
        """Return the only phase, name -> epochs. Without pairs, the number of documents sets the epochs."""
        return {"encoder": self.passes(pairs or min(documents, MOST_DRAWN))}
