"""`train:` training of the encoder, and of the router too with some methods. Each method has one file."""

from typing import Annotated

from pydantic import Field

from rayhier.spec.train.common import InfoNce, Training
from rayhier.spec.train.contrast import ContrastTraining
from rayhier.spec.train.ehi import EhiTraining
from rayhier.spec.train.hce import HceTraining, TreeShape
from rayhier.spec.train.pseudo_queries import PseudoQueries
from rayhier.spec.train.retreever import RetreeverTraining

TrainSpec = Annotated[ContrastTraining | EhiTraining | HceTraining | RetreeverTraining, Field(discriminator="type")]

__all__ = [
    "ContrastTraining",
    "EhiTraining",
    "HceTraining",
    "InfoNce",
    "PseudoQueries",
    "RetreeverTraining",
    "TrainSpec",
    "Training",
    "TreeShape",
]
