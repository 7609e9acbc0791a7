"""Estimate the scores of all documents of a query from the scores of some: the fits of AXN, ADACUR and ours.

A fit is solved in float64, and is a pure function of the documents read [s] and their scores [s], so that any black box
may have scored them. Shapes: P documents that may be read (the pool), M dimensions, S of them read.
Source: Yadav et al., "Adaptive Retrieval and Scalable Indexing for k-NN Search with Cross-Encoders", ICLR 2024;
"Efficient Nearest Neighbor Search for Cross-Encoder Models using Matrix Factorization", EMNLP 2022 (ADACUR).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import scipy.linalg

from rayhier.arrays import Floats, Ints, Values

CUT = 1e-6
"""Singular values below this share of the largest count as zero: with near-low-rank documents the usual 1e-15 gives
estimates that are wrong by several times the scores."""


class Fit(Protocol):
    """An estimator of the scores of all of a query's documents from the scores of those already read."""

    def estimate(self, read_S: Ints, score_S: Values) -> Values:
        """Estimate the scores [p] of all documents from scores [s] of the documents at rows [s]."""


@dataclass(frozen=True)
class Fixed:
    """An estimator that no score changes: documents keep the order of the search, as in retrieve-and-rerank."""

    prior_P: Values

    def estimate(self, read_S: Ints, score_S: Values) -> Values:  # noqa: ARG002  scores change nothing
        """Return the scores [p] of the order before the first call."""
        return self.prior_P


@dataclass(frozen=True)
class PlusBase:
    """A fit of scores that are sums of a known part and the scorer's: the inner fit gets the scorer's part alone."""

    fit: Fit
    known_P: Values
    """Known part of each document's score [p]."""

    def estimate(self, read_S: Ints, score_S: Values) -> Values:
        """Estimated scores [p] of all documents, the known part included."""
        return self.fit.estimate(read_S, score_S - self.known_P[read_S]) + self.known_P


@dataclass(frozen=True)
class Ridge:
    """Scores as intercept + slope · prior + a residual that similar documents share (ours).

    With F = [1, p] and G = V_A V_Aᵀ + μ I over the documents A that were read, c minimises (s - F_A c)ᵀ G⁻¹
    (s - F_A c) with slope >= 0, and the estimate is F c + V V_Aᵀ G⁻¹ (s - F_A c): kriging with a linear trend.
    """

    prior_P: Values
    """Expected score of each document [p] before it is read, up to scale: the base score, with a bias where known."""
    vector_PM: Floats
    mu: float = 1.0
    """Weight against the residual, for unit vectors; a large one leaves the prior's order."""

    def estimate(self, read_S: Ints, score_S: Values) -> Values:
        """Estimated scores [p] of all documents."""
        read_SM = self.vector_PM[read_S].astype(np.float64)
        factor = scipy.linalg.cho_factor(read_SM @ read_SM.T + self.mu * np.eye(len(read_S)), lower=True)

        def solve(right: np.ndarray) -> np.ndarray:
            return np.asarray(scipy.linalg.cho_solve(factor, right))

        trend_2, own_S = _trend(self.prior_P[read_S], score_S, solve)
        residual_P = _products(self.vector_PM, read_SM.T @ solve(score_S - own_S))
        return np.asarray(trend_2[0] + trend_2[1] * self.prior_P + residual_P)


def _products(vector_PM: Floats, query_M: Values) -> Values:
    """Inner products [p] of documents with a query vector, in the precision that the documents are held in."""
    return np.asarray(vector_PM @ query_M.astype(vector_PM.dtype), dtype=np.float64)


def _trend(prior_S: Values, score_S: Values, solve: Callable[[np.ndarray], np.ndarray]) -> tuple[Values, Values]:
    """Intercept and slope by generalised least squares, slope at least 0, and the trend's values [s]."""
    design_S2 = np.stack([np.ones(len(prior_S)), prior_S], axis=1)
    weighted_S2 = solve(design_S2)
    normal_22, right_2 = design_S2.T @ weighted_S2, weighted_S2.T @ score_S
    # A prior that tells the documents read not apart has no slope to be found.
    spread = np.ptp(prior_S) > CUT * max(1.0, float(np.abs(prior_S).max(initial=0)))
    both_2 = np.linalg.solve(normal_22, right_2) if spread else np.array([0.0, -1.0])
    if both_2[1] < 0 or not np.isfinite(both_2).all():
        both_2 = np.array([right_2[0] / normal_22[0, 0], 0.0])
    return both_2, design_S2 @ both_2


@dataclass(frozen=True)
class LeastSquares:
    """A query vector by least squares of minimum norm, mixed with the base's (Algorithm 1 of the AXN paper)."""

    vector_PM: Floats
    base_M: Values | None = None
    """The base retriever's query vector; None without one."""
    lam: float = 0.0
    """Share λ of the base's vector."""
    matching: "Matching" = field(default_factory=lambda: Matching(0.0, 1.0))

    def estimate(self, read_S: Ints, score_S: Values) -> Values:
        """Estimated scores [p] of all documents, in the cross-encoder's range."""
        own_M = np.zeros(self.vector_PM.shape[1])
        if self.lam < 1:
            read_SM = self.vector_PM[read_S].astype(np.float64)
            own_M = scipy.linalg.lstsq(read_SM, self.matching(score_S), cond=CUT)[0]
        base_M = 0.0 if self.base_M is None else self.lam * self.base_M
        return self.matching.undo(_products(self.vector_PM, (1 - self.lam) * own_M + base_M))


@dataclass(frozen=True)
class Matching:
    """Brings the cross-encoder's scores into the range of the base retriever's: β (s - α), as AXN does.

    >>> matching = Matching.of(np.array([0.0, 2.0]), np.array([0.4, 0.6]))
    >>> matching(np.array([0.0, 2.0])).tolist()
    [0.4, 0.6]
    """

    alpha: float
    beta: float

    @classmethod
    def of(cls, score_N: Values, base_N: Values) -> "Matching":
        """Match the scores [n] of pairs to their base scores [n]; no change where all of either are equal."""
        spread, base_spread = float(np.std(score_N)), float(np.std(base_N))
        if not spread or not base_spread:
            return cls(0.0, 1.0)
        beta = base_spread / spread
        return cls(float(np.mean(score_N)) - float(np.mean(base_N)) / beta, beta)

    def __call__(self, score_N: Values) -> Values:
        """Matched scores [n]."""
        return np.asarray(self.beta * (score_N - self.alpha))

    def undo(self, matched_N: Values) -> Values:
        """Convert matched scores [n] back to scores [n]."""
        return np.asarray(matched_N / self.beta + self.alpha)
