"""Decide if an index uses the trained encoder or the base encoder. The train stage publishes the decision.

Shapes: Q queries that the training did not read.
"""

from typing import Literal, Self

import numpy as np
from pydantic import Field

from rayhier.arrays import Ints, Values
from rayhier.storage.decision import Decision

MEASURE = "nDCG@10"
ERRORS, PSEUDO = 1.0, 2.0
"""Numbers of standard errors that a mean gain must exceed. Pseudo-queries must show more, as they resemble training."""
ROUNDING = 1e-9
"""Least amount by which a gain exceeds the standard errors. One gain among many queries equals one standard error."""

Source = Literal["dev queries", "train queries in folds", "pseudo-queries"]


class Adoption(Decision):
    """The decision to keep a trained encoder or not, and the queries and numbers that made it."""

    file = "adoption.json"
    adopted: bool
    source: Source
    queries: int
    mode: str
    measure: str
    base: float
    gain: float
    error: float
    measured: dict[str, float] = Field(default_factory=dict)
    """Weight of BM25 -> mean of the measure with the index's encoder. Empty for searches by vectors."""

    @classmethod
    def of(
        cls, source: Source, base_Q: Values, trained_Q: Values, mode: str = "dense", family_Q: Ints | None = None
    ) -> Self:
        """Decide by the measure of each query [q] with the base encoder and with the trained encoder.

        Queries of a family [q] count as one, because only families are independent. If there is one query, or no gain
        or loss, the base encoder stays.

        >>> import numpy as np
        >>> Adoption.of("dev queries", np.array([0.1, 0.2, 0.3]), np.array([0.3, 0.3, 0.5])).adopted
        True
        >>> Adoption.of("dev queries", np.array([0.1]), np.array([0.9])).adopted
        False
        """
        gain_Q, q = trained_Q - base_Q, len(base_Q)
        gain = float(gain_Q.mean()) if q else 0.0
        number_Q = np.arange(q) if family_Q is None else np.unique(family_Q, return_inverse=True)[1]
        sum_F = np.bincount(number_Q, weights=gain_Q - gain)
        f = len(sum_F)
        error = float(np.linalg.norm(sum_F)) / q * (f / (f - 1)) ** 0.5 if f > 1 else 0.0
        return cls(
            adopted=f > 1 and gain > (PSEUDO if source == "pseudo-queries" else ERRORS) * error + ROUNDING,
            source=source,
            queries=q,
            mode=mode,
            measure=MEASURE,
            base=round(float(base_Q.mean()), 6) if q else 0.0,
            gain=round(gain, 6),
            error=round(error, 6),
        )

    @property
    def sentence(self) -> str:
        by = "vectors and BM25" if self.mode == "hybrid" else "vectors"
        gain = f"{100 * self.gain:+.1f} ± {100 * self.error:.1f} points of {MEASURE}"
        told = f"{self.queries:,} {self.source} gain {gain} by {by}"
        if self.adopted:
            return f"the trained encoder is kept: {told}"
        if self.queries > 1 and self.gain == self.error == 0:
            return f"{self.queries:,} {self.source} find the same after training, so the base encoder stays"
        few = "one query tells nothing" if self.queries == 1 else told if self.queries else "too few queries to tell"
        return f"the trained encoder is not kept, the base encoder stays: {few}"
