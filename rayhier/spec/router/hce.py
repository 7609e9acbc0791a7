"""`router: {type: hce}`: leaves are nodes of the tree that HCE trains with (our addition; the paper discards it)."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.router.common import FirstPass, Routing


class HceRouting(Routing):
    """HCE's router: leaves are the lowest nodes in HCE's loss; a text goes to the nodes with nearest centroids."""

    type: Literal["hce"]
    rounds: Annotated[int, Field(ge=0, le=1000)] = 3
    """Iterations of k-means that move the trained centroids to the documents' trained vectors; 0: they stay as
    trained."""
    first_pass: FirstPass = "auto"
    """Comparison of a query with all leaves before the best are scored in full. `auto`: by four-bit codes of the
    leaves' weights, made when an index is opened, from 624 leaves on; `none`: all leaves are scored in full."""

    @property
    def codes_first(self) -> bool:
        """Return True if a search first compares queries with codes of the leaves, where there are many."""
        return self.first_pass == "auto"

    def multiply_adds(self, leaves: int, dimension: int) -> float:
        """Return the multiply-adds that routing a vector takes where it is compared with all leaves."""
        return float(dimension * leaves)
