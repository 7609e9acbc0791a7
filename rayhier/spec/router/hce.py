"""`router: {type: hce}`: the leaves are nodes of the tree that HCE trains with (ours; the paper discards the tree)."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.router.common import Routing
from rayhier.spec.router.learned_ivf import automatic_screen

WIDER = 2
"""Dimensions of an automatic screen as a multiple of a learned IVF's, whose router learns to make up for fewer."""


class HceRouting(Routing):
    """Leaves are nodes of the lowest level in HCE's loss: a document lies in the nearest, queries visit by nearness."""

    type: Literal["hce"]
    rounds: Annotated[int, Field(ge=0, le=1000)] = 3
    """Rounds of k-means that move the trained centroids to the documents' trained vectors; 0: centroids as trained."""
    screen: Annotated[int, Field(ge=0, le=4096)] | Literal["auto"] = "auto"
    """Dimensions of a first, cheap pass over all leaves; 0: no such pass. `auto`: 96 from 256 leaves on."""

    @property
    def dimensions(self) -> dict[str, int]:
        """Keys that count dimensions of the vectors, with their values: screen."""
        return {"screen": 0 if self.screen == "auto" else self.screen}

    def multiply_adds(self, leaves: int, dimension: int) -> float:
        """Multiply-adds of routing one vector where every leaf is scored."""
        return float(dimension * leaves)

    def screened(self, leaves: int) -> int:
        """Dimensions of the first pass over a number of leaves; 0: no such pass."""
        return WIDER * automatic_screen(leaves) if self.screen == "auto" else self.screen
