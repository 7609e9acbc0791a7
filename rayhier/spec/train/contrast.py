"""`train: {type: contrast}`: only the encoder learns. Queries move towards their documents, and away from others."""

from typing import Literal

from rayhier.spec.train.common import InfoNce


class ContrastTraining(InfoNce):
    """Training of the encoder by InfoNCE on judged pairs and on pseudo-queries."""

    type: Literal["contrast"]
