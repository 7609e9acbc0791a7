"""`search:` defaults of every search over the index."""

import math
from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.section import Section

ROWS_A_RESULT = 10
"""Rows that the leaves of an automatic beam hold for each result."""
LEAVES_A_VISITED = 20
"""Leaves for each that an automatic beam visits, at least."""
FEWEST_VISITED = 4
"""Least leaves of an automatic beam."""


Codec = Literal["flat", "fp16", "int8", "pq", "rabitq"]


class MassBeam(Section):
    """A beam by probability: a query visits leaves whose documents are probable enough answers, at most as `auto`."""

    type: Literal["mass"]
    target: Annotated[float, Field(ge=0.5, le=1)]
    """Share of the dev queries' answers that must lie in visited leaves; it sets which probability is enough."""


class NoRerank(Section):
    """No reranking: results keep the order of the leaf scan."""

    type: Literal["none"]


class SearchSpec(Section):
    """How many leaves a search reads, how it scores them, and how many results it returns."""

    k: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Number of results a query returns."""
    beam: Annotated[int, Field(ge=1)] | Literal["auto"] | MassBeam = "auto"
    """Leaves a query visits, β. `auto`: as many as hold ten rows for each result, at most a twentieth of all leaves,
    at least 4. `{type: mass, target: 0.95}`: as many as each query needs, by the router's own probabilities."""
    codec: Codec | Literal["auto"] = "auto"
    """How faiss stores the vectors of a leaf: `flat` 4 bytes a dimension, `fp16` 2, `int8` 1, `pq` and `rabitq` an
    eighth of a byte. After a lossy codec the best rows are scored again by the stored vectors. `auto`: the precision
    of the stored vectors, so that nothing is lost."""
    cache_gb: Annotated[float, Field(gt=0)] = 50
    """Most disk space, in 10⁹ bytes, that searches use on a machine to cache indexes: the least recently used is
    removed first; an index that a search has open is never removed."""
    rerank: NoRerank = NoRerank(type="none")
    """Second ranking of the results after the scan; only `none` exists."""

    @property
    def reach(self) -> float | None:
        """Share of the dev queries' answers that queries with beams of their own must reach; None: one beam for all."""
        return self.beam.target if isinstance(self.beam, MassBeam) else None

    def leaves_visited(self, leaves: int, rows: int) -> int:
        """Most leaves that a query visits, β, of `leaves`, which hold `rows` rows (two for a document in two leaves).

        >>> SearchSpec(k=100).leaves_visited(leaves=1296, rows=10366), SearchSpec(beam=7).leaves_visited(1296, 10366)
        (65, 7)
        """
        if isinstance(self.beam, int):
            return min(self.beam, leaves)
        holding = ROWS_A_RESULT * self.k * leaves / max(rows, 1)
        return min(leaves, max(FEWEST_VISITED, math.ceil(min(holding, leaves / LEAVES_A_VISITED))))
