"""`router: {type: hce}`: the leaves are nodes of the tree that HCE trains with (ours; the paper discards the tree)."""

from typing import Annotated, Literal, Self

from pydantic import Field

from rayhier.spec.router.learned_ivf import automatic_screen
from rayhier.spec.router.tree import Reads
from rayhier.spec.section import Section


class HceRouting(Section):
    """Documents lie with the nearest centroid of the lowest level that training tells apart; queries visit by it."""

    type: Literal["hce"]
    screen: Annotated[int, Field(ge=0, le=4096)] | Literal["auto"] = "auto"
    """Dimensions of a first, cheap pass over all leaves; 0: no such pass. `auto`: 48 from 256 leaves on."""

    @property
    def spills(self) -> bool:
        """Whether only documents near a border get a second leaf: no, with two leaves a document all documents do."""
        return False

    @property
    def calibrates(self) -> bool:
        """Whether the router learns from dev queries how probable an answer is: no."""
        return False

    @property
    def reads(self) -> Reads:
        """Part of an encoded text that routing needs."""
        return "vectors"

    @property
    def dimensions(self) -> dict[str, int]:
        """Keys that count dimensions of the vectors, with their values: screen."""
        return {"screen": 0 if self.screen == "auto" else self.screen}

    def phases(self, *, supervised: bool) -> dict[str, int]:  # noqa: ARG002  training makes the centroids
        """Phases in which only the router trains, name -> epochs: none, its centroids are trained with the encoder."""
        return {}

    def lessons(self, queries: int, documents: int) -> int:  # noqa: ARG002  always none
        """Number of texts that teach the router after the encoder has trained: none."""
        return 0

    def multiply_adds(self, leaves: int, dimension: int) -> float:
        """Multiply-adds of routing one vector where every leaf is scored."""
        return float(dimension * leaves)

    def over(self, documents: int) -> Self:  # noqa: ARG002  nothing here depends on it
        """A copy with `auto` replaced by the branching it means for `documents` documents: nothing to replace."""
        return self

    def screened(self, leaves: int) -> int:
        """Dimensions of the first pass over a number of leaves; 0: no such pass."""
        return automatic_screen(leaves) if self.screen == "auto" else self.screen
