"""`train: {type: contrast}`: the encoder alone learns, bringing queries to their documents and away from others."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.section import Rate
from rayhier.spec.train.common import Mining, Training


class HardNegatives(Mining):
    """One mined negative a query, drawn from the best wrong documents."""

    source: Literal["exact", "none"] = "exact"
    """`exact`: of all documents, by an exact search (ANCE's). `none`: the other documents of a batch alone."""


class Contrast(Training):
    """InfoNCE over the documents of a batch and mined hard negatives; without train judgements nothing is trained."""

    type: Literal["contrast"]
    encoder_lr: Rate = 1e-3
    """Learning rate of AdamW (weight decay 0.01, torch's default), falling to zero."""
    temperature: Annotated[float, Field(gt=0, le=10)] = 0.05
    """Scores are divided by it before the softmax."""
    hard_negatives: HardNegatives = HardNegatives()
    """Mined negatives."""

    @property
    def routes(self) -> bool:
        """Whether the router learns together with the encoder: no, it comes after it."""
        return False

    def phases(self, *, supervised: bool) -> dict[str, int]:
        """Epochs of each phase of training: without judged pairs the encoder stays as it came."""
        return {"encoder": self.epochs} if supervised else {}
