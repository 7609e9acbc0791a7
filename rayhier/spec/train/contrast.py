"""`train: {type: contrast}`: only the encoder learns. Queries move towards their answers, away from other documents."""

from typing import Literal

from rayhier.spec.train.common import InfoNce


class ContrastTraining(InfoNce):
    """Training of the encoder by InfoNCE on judged pairs and on pseudo-queries."""

    type: Literal["contrast"]
