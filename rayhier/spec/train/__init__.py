"""`train:` how the encoder learns, and with some methods the tree too; one file for each method."""

from typing import Annotated

from pydantic import Field

from rayhier.spec.train.common import Training
from rayhier.spec.train.contrast import Contrast
from rayhier.spec.train.ehi import Ehi

TrainSpec = Annotated[Contrast | Ehi, Field(discriminator="type")]

__all__ = ["Contrast", "Ehi", "TrainSpec", "Training"]
