"""Settings that all trainings share: epochs, batches, documents kept in memory, measurements on dev."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.section import Section


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
    """Most documents that training keeps in memory with their vectors: all judged documents, and others up to this
    number, drawn by a hash of the id. The index holds all documents."""
    measure_every: Annotated[int, Field(ge=1)] = 1
    """Epochs between two measurements on dev; each encodes every document, with ehi also routes it. The last epoch
    is always measured."""


class Mining(Section):
    """How often hard negatives (wrong documents that look right) are mined, and from how many one is drawn."""

    source: str
    """Where hard negatives are taken from; with `none` nothing is mined."""
    top: Annotated[int, Field(ge=1, le=1000)] = 10
    """Best wrong documents of a query, from which one is drawn uniformly."""
    refresh: Annotated[int, Field(ge=1)] = 5
    """Epochs or steps (see `unit`) after which hard negatives are mined again."""
    unit: Literal["epochs", "steps"] = "epochs"
    """Unit of `refresh`: section 3.5 of the EHI paper says steps, its Table 8 reads as epochs."""

    @model_validator(mode="after")
    def _mined_at_all(self) -> Self:
        if self.source == "none":
            self.refuse("top", "refresh", "unit", where="only where source is not none")
        return self
