"""`router:` the leaves, and how texts are routed to them; one file for each method."""

from typing import Annotated

from pydantic import Field

from rayhier.spec.router.common import Reads
from rayhier.spec.router.ehi import EhiRouting
from rayhier.spec.router.hce import HceRouting
from rayhier.spec.router.learned_ivf import LearnedIvfRouting, Teaching

RouterSpec = Annotated[LearnedIvfRouting | EhiRouting | HceRouting, Field(discriminator="type")]

__all__ = ["EhiRouting", "HceRouting", "LearnedIvfRouting", "Reads", "RouterSpec", "Teaching"]
