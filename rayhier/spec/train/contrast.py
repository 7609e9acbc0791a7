"""`train: {type: contrast}`: the encoder learns alone, moving queries towards their documents, away from others."""

from typing import Literal

from rayhier.spec.train.common import InfoNce


class ContrastTraining(InfoNce):
    """Training of the encoder by InfoNCE on judged pairs and on pseudo-queries."""

    type: Literal["contrast"]
