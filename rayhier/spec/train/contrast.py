"""`train: {type: contrast}`: only the encoder learns, moving queries towards their documents, away from others."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.section import Rate
from rayhier.spec.train.common import Mining, Training


class HardNegatives(Mining):
    """One mined negative for each query, drawn from its best wrong documents."""

    source: Literal["exact", "none"] = "exact"
    """`exact`: found among all documents by an exact search (as in ANCE). `none`: only the batch's other documents."""


class Contrast(Training):
    """InfoNCE over a batch's documents and mined hard negatives; without train judgements nothing is trained."""

    type: Literal["contrast"]
    encoder_lr: Rate = 1e-3
    """Learning rate of AdamW (weight decay 0.01, torch's default), falling to zero."""
    temperature: Annotated[float, Field(gt=0, le=10)] = 0.05
    """Number by which scores are divided before the softmax."""
    hard_negatives: HardNegatives = HardNegatives()
    """Mined hard negatives."""

    @property
    def routes(self) -> bool:
        """Whether the router learns together with the encoder: no, after it."""
        return False

    def phases(self, *, supervised: bool) -> dict[str, int]:
        """Phases of training, name -> epochs: none without judged pairs, the encoder is not changed then."""
        return {"encoder": self.epochs} if supervised else {}
