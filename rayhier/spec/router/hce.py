"""`router: {type: hce}`: leaves are nodes of the tree that HCE trains with (our addition; the paper discards it)."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.router.common import Routing
from rayhier.spec.router.learned_ivf import automatic_screen

WIDER = 2
"""Factor by which an automatic `screen` has more dimensions than that of learned_ivf, whose router learns to need
fewer."""


class HceRouting(Routing):
    """HCE's router: leaves are the lowest nodes in HCE's loss; a text goes to the nodes with nearest centroids."""

    type: Literal["hce"]
    rounds: Annotated[int, Field(ge=0, le=1000)] = 3
    """Iterations of k-means that move the trained centroids to the documents' trained vectors; 0: they stay as
    trained."""
    screen: Annotated[int, Field(ge=0, le=4096)] | Literal["auto"] = "auto"
    """Dimensions of the first pass, a cheap comparison with all leaves; 0: no first pass. `auto`: 96 from 256 leaves
    on."""

    @property
    def dimensions(self) -> dict[str, int]:
        """Key of the section that counts dimensions, `screen` -> its value; 0 where it is `auto`."""
        return {"screen": 0 if self.screen == "auto" else self.screen}

    def multiply_adds(self, leaves: int, dimension: int) -> float:
        """Return the multiply-adds that routing a vector takes where it is compared with all leaves."""
        return float(dimension * leaves)

    def screened(self, leaves: int) -> int:
        """Return the dimensions of the first pass over a number of leaves; 0: no first pass."""
        return WIDER * automatic_screen(leaves) if self.screen == "auto" else self.screen
