"""TOUR, a control of budgeted search: a step of gradient descent of the query vector a round, instead of a solution.

Source: Sung et al., "Optimizing Test-Time Query Representations for Dense Retrieval", ACL 2023.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.special import softmax

from rayhier.arrays import Floats, Ints, Values
from rayhier.scores.estimators import Matching


@dataclass
class Tour:
    """A query vector that moves with every round of scores, so that estimates depend on all rounds before."""

    vector_PM: Floats
    query_M: Values
    """The base retriever's query vector at first, then the one after the rounds so far."""
    rate: float
    loss: Literal["kl", "mse"] = "kl"
    matching: Matching = field(default_factory=lambda: Matching(0.0, 1.0))

    def estimate(self, read_S: Ints, score_S: Values) -> Values:
        """Estimated scores [p] of all documents, after one further step on those read [s] and their scores [s]."""
        read_SM = self.vector_PM[read_S].astype(np.float64)
        own_S, target_S = read_SM @ self.query_M, self.matching(score_S)
        kl_S, mse_S = softmax(own_S) - softmax(target_S), 2 * (own_S - target_S) / len(read_S)
        self.query_M = self.query_M - self.rate * read_SM.T @ (mse_S if self.loss == "mse" else kl_S)
        score_P = self.vector_PM @ self.query_M.astype(self.vector_PM.dtype)
        return self.matching.undo(np.asarray(score_P, dtype=np.float64))
