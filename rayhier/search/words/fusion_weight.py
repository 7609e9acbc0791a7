"""The weight of BM25 in hybrid searches: how queries choose it for a model, and how the stage calibrate publishes it.

With few queries, weights differ by chance. So a weight w far from the usual weight 0.25 must win clearly. A penalty of
log² ((w + 0.05) / (0.25 + 0.05)) lowers the sum of the queries' nDCG@10 (our addition). Shapes: Q queries, W weights.
"""

import numpy as np

from rayhier.arrays import Values
from rayhier.spec.search import TAUGHT_WEIGHT
from rayhier.storage.decision import Decision

WEIGHTS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)
STRENGTH, SMOOTHED = 1.0, 0.05
"""Strength of the penalty of a weight, and the number that is added to a weight before its logarithm."""


class FusionWeight(Decision):
    """A weight of BM25, and what each weight found for the queries that chose it."""

    file = "weight.json"
    weight: float
    queries: int
    folded: int = 0
    """Number of train queries that also chose the weight, each by an encoder that was not trained on the query."""
    measure: str
    """Measure that compares weights, such as nDCG@10."""
    measured: dict[str, float]
    """Weight -> mean of the measure over the queries that chose among weights."""

    @property
    def chosen_by(self) -> str:
        """Number and kind of the queries that chose, in words.

        >>> FusionWeight(weight=0.2, queries=70, folded=309, measure="nDCG@10", measured={}).chosen_by
        '70 dev queries and 309 train queries in folds'
        """
        dev = f"{self.queries:,} dev quer{'y' if self.queries == 1 else 'ies'}"
        return f"{dev} and {self.folded:,} train queries in folds" if self.folded else dev


def best(value_WQ: Values, more_W: Values | float = 0.0) -> float:
    """Return the weight with the highest sum over queries, less the penalty for its distance from the usual weight.

    `value_WQ` [w, q] has the measure of each query with each of WEIGHTS. `more_W` [w] has sums over further queries.

    >>> best(np.full((len(WEIGHTS), 50), 0.5)), best(np.tile(np.linspace(1, 0.5, len(WEIGHTS))[:, None], 50))
    (0.25, 0.0)
    """
    distance_W = np.log((np.array(WEIGHTS) + SMOOTHED) / (TAUGHT_WEIGHT + SMOOTHED))
    return WEIGHTS[int((value_WQ.sum(axis=1) + more_W - STRENGTH * distance_W**2).argmax())]
