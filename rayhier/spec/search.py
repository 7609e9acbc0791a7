"""`search:` defaults of every search over the index."""

import math
from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.section import Section

ROWS_A_RESULT = 10
LEAVES_A_VISITED = 20
FEWEST_VISITED = 4


Codec = Literal["flat", "fp16", "int8", "pq", "rabitq"]


class MassBeam(Section):
    """A query visits leaves while a document there is its answer with enough probability; none beyond `auto`."""

    type: Literal["mass"]
    target: Annotated[float, Field(ge=0.5, le=1)]
    """Share of the dev queries' answers that must lie in visited leaves: what is probable enough is read off them."""


class NoRerank(Section):
    """Results stand as the leaf scan ranked them."""

    type: Literal["none"]


class SearchSpec(Section):
    """How many leaves are read and how many documents come back."""

    k: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Results a query."""
    beam: Annotated[int, Field(ge=1)] | Literal["auto"] | MassBeam = "auto"
    """Leaves a query visits, β. `auto`: as many as hold ten rows for each result, a twentieth of all leaves at most.
    `{type: mass, target: 0.95}`: as many as each query needs, by the router's own probabilities."""
    codec: Codec | Literal["auto"] = "auto"
    """How faiss holds the vectors of a leaf: `flat` 4 bytes a dimension, `fp16` 2, `int8` 1, `pq` an eighth of
    one, `rabitq` as much. What loses something is scored again by the stored vectors. `auto`: as they are stored, so
    that nothing is lost."""
    cache_gb: Annotated[float, Field(gt=0)] = 50
    """Most that searches keep of indexes on a machine, in 10⁹ bytes: what was used longest ago is removed first, and
    what a search has open never."""
    rerank: NoRerank = NoRerank(type="none")
    """What happens to the results after the scan."""

    def leaves_visited(self, leaves: int, rows: int) -> int:
        """β, at most, over so many leaves that hold so many rows (a document in two leaves is two); 4, if there are.

        >>> SearchSpec(k=100).leaves_visited(leaves=1296, rows=10366), SearchSpec(beam=7).leaves_visited(1296, 10366)
        (65, 7)
        """
        if isinstance(self.beam, int):
            return min(self.beam, leaves)
        holding = ROWS_A_RESULT * self.k * leaves / max(rows, 1)
        return min(leaves, max(FEWEST_VISITED, math.ceil(min(holding, leaves / LEAVES_A_VISITED))))
