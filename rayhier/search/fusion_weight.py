"""The weight of BM25 in hybrid searches: how queries choose it for a model, and how the stage calibrate publishes it.

Few queries tell weights apart by chance alone, so a weight far from the usual one has to win more: it loses
2 log² ((w + .05) / (.25 + .05)) of the sum of the queries' nDCG@10 (ours; docs/LOG.md has what else was tried).

Shapes: Q queries, W weights.
"""

import numpy as np

from rayhier.arrays import Values
from rayhier.spec.search import TAUGHT_WEIGHT
from rayhier.storage.decision import Decision

WEIGHTS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)
STRENGTH, SMOOTHED = 2.0, 0.05
"""Numbers of the penalty of a weight: how strong it is, and what is added to weights, whose logarithms count."""


class FusionWeight(Decision):
    """A weight of BM25, and what each weight found for the dev queries."""

    file = "weight.json"
    weight: float
    queries: int
    """Number of dev queries."""
    measure: str
    """Measure by which weights were told apart, such as nDCG@10."""
    measured: dict[str, float]
    """Weight -> mean of the measure over these queries."""


def best(value_WQ: Values) -> float:
    """Return the weight with the highest sum over queries, less the penalty for its distance from the usual weight.

    `value_WQ` [w, q] are the measure of each query with each of WEIGHTS.

    >>> best(np.full((len(WEIGHTS), 50), 0.5)), best(np.tile(np.linspace(1, 0.5, len(WEIGHTS))[:, None], 50))
    (0.25, 0.0)
    """
    distance_W = np.log((np.array(WEIGHTS) + SMOOTHED) / (TAUGHT_WEIGHT + SMOOTHED))
    return WEIGHTS[int((value_WQ.sum(axis=1) - STRENGTH * distance_W**2).argmax())]
