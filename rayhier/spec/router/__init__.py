"""`router:` the leaves and what leads to them; one method a file."""

from typing import Annotated

from pydantic import Field

from rayhier.spec.router.ehi import Ehi
from rayhier.spec.router.learned_ivf import LearnedIvf, Teaching

RouterSpec = Annotated[LearnedIvf | Ehi, Field(discriminator="type")]

__all__ = ["Ehi", "LearnedIvf", "RouterSpec", "Teaching"]
