"""`train:` how the encoder learns, and with some methods the tree too; one file for each method."""

from typing import Annotated

from pydantic import Field

from rayhier.spec.train.common import Training
from rayhier.spec.train.contrast import ContrastTraining
from rayhier.spec.train.ehi import EhiTraining

TrainSpec = Annotated[ContrastTraining | EhiTraining, Field(discriminator="type")]

__all__ = ["ContrastTraining", "EhiTraining", "TrainSpec", "Training"]
