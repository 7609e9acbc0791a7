"""`router:` the leaves, and how texts are routed to them; one file for each method."""

from typing import Annotated

from pydantic import Field

from rayhier.spec.router.ehi import Ehi
from rayhier.spec.router.learned_ivf import LearnedIvf, Teaching

RouterSpec = Annotated[LearnedIvf | Ehi, Field(discriminator="type")]

__all__ = ["Ehi", "LearnedIvf", "RouterSpec", "Teaching"]
