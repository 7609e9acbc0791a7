"""`router:` the leaves of the index, and the model that routes texts to leaves. Each method has one file."""

from typing import Annotated

from pydantic import Field

from rayhier.spec.router.common import Reads
from rayhier.spec.router.ehi import EhiRouting
from rayhier.spec.router.hce import HceRouting
from rayhier.spec.router.learned_ivf import LearnedIvfRouting
from rayhier.spec.router.retreever import RetreeverRouting

RouterSpec = Annotated[LearnedIvfRouting | EhiRouting | HceRouting | RetreeverRouting, Field(discriminator="type")]

__all__ = ["EhiRouting", "HceRouting", "LearnedIvfRouting", "Reads", "RetreeverRouting", "RouterSpec"]
