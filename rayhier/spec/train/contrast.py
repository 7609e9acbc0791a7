"""`train: {type: contrast}`: only the encoder learns, moving queries towards their documents, away from others."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.section import Rate
from rayhier.spec.train.common import Mining, Training


class ContrastNegatives(Mining):
    """One mined negative for each query, drawn from its best wrong documents."""

    source: Literal["exact", "none"] = "exact"
    """`exact`: found among all documents by an exact search (as in ANCE). `none`: only the batch's other documents."""


class ContrastTraining(Training):
    """InfoNCE over a batch's documents and mined hard negatives; without train judgements nothing is trained."""

    type: Literal["contrast"]
    encoder_lr: Rate = 1e-3
    """Learning rate of AdamW (weight decay 0.01, torch's default), falling to zero."""
    temperature: Annotated[float, Field(gt=0, le=10)] = 0.05
    """Number by which scores are divided before the softmax."""
    hard_negatives: ContrastNegatives = ContrastNegatives()
    """Mined hard negatives."""

    @model_validator(mode="after")
    def _trains_at_all(self) -> Self:
        learns = ("epochs", "batch_size", "micro_batch", "encoder_lr", "temperature", "hard_negatives", "measure_every")
        if self.objective == "documents":
            self.refuse(*learns, where="only where objective is not documents, which trains no encoder")
        return self

    @property
    def routes(self) -> bool:
        """Whether the router learns together with the encoder: no, after it."""
        return False

    def phases(self, *, supervised: bool) -> dict[str, int]:
        """Phases of training, name -> epochs: none without judged pairs, the encoder is not changed then."""
        return {"encoder": self.epochs} if supervised else {}
