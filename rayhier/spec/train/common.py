"""What all trainings share: epochs, batches, what is held in memory, when dev is measured."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.section import Section


class Training(Section):
    """Epochs over pairs of a query and a document."""

    objective: Literal["auto", "supervised", "documents"] = "auto"
    """`supervised`: judged pairs. `documents`: each document asks for its nearest neighbours. `auto`: supervised where
    train judgements exist."""
    epochs: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Passes over the training pairs."""
    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 256
    """Pairs a step, over all workers."""
    micro_batch: Annotated[int, Field(ge=1)] | None = None
    """Texts whose activations a worker holds at a time. Gradients are cached, so they do not depend on it, and each
    text is encoded twice: batch 4096 fits one GPU. None: the whole share of a batch at once."""
    most_documents: Annotated[int, Field(ge=1_000)] = 1_000_000
    """Documents that training holds, with their vectors, in memory: judged ones, and of the others as many as there is
    room for, drawn by hash of the id. All are indexed."""
    measure_every: Annotated[int, Field(ge=1)] = 1
    """Epochs between two measurements on dev, which encode and route every document; the last is always measured."""


class Mining(Section):
    """When and among how many hard negatives, wrong documents that look right, are mined for each query."""

    top: Annotated[int, Field(ge=1, le=1000)] = 10
    """Best wrong documents among which one is drawn uniformly."""
    refresh: Annotated[int, Field(ge=1)] = 5
    """Epochs or steps, as `unit` says, after which they are mined again."""
    unit: Literal["epochs", "steps"] = "epochs"
    """What `refresh` counts: EHI's section 3.5 says steps, its Table 8 reads as epochs."""
