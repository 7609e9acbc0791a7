"""Estimate the scores of all documents for a query from the scores of some: by AXN, by ADACUR, and by our method.

Shapes: P documents that may be read (the pool), S documents read, M dimensions.

Sources: Yadav et al., "Adaptive Retrieval and Scalable Indexing for k-NN Search with Cross-Encoders", ICLR 2024. Yadav
et al., "Efficient Nearest Neighbor Search for Cross-Encoder Models using Matrix Factorization", EMNLP 2022 (ADACUR).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rayhier.arrays import Floats, Ints, Values

CUT = 1e-6
"""Singular values below this share of the largest value count as zero. The usual 1e-15 gives wrong estimates."""


class Fit(Protocol):
    """Interface of the estimators: estimate all documents' scores for a query from the scores of the documents read."""

    def estimate(self, read_S: Ints, score_S: Values) -> Values: ...


@dataclass(frozen=True)
class Fixed:
    prior_P: Values

    def estimate(self, read_S: Ints, score_S: Values) -> Values:  # noqa: ARG002  scores change nothing
        return self.prior_P


@dataclass(frozen=True)
class PlusBase:
    """Estimates a sum of two scores: a known score, and the cross-encoder's score."""

    fit: Fit
    known_P: Values

    def estimate(self, read_S: Ints, score_S: Values) -> Values:
        return self.fit.estimate(read_S, score_S - self.known_P[read_S]) + self.known_P


@dataclass(frozen=True)
class Ridge:
    """Estimates scores as intercept + slope · prior + a residual that similar documents share (ours).

    V are the pool's vectors, A the documents read, s their scores, `F = [1, prior]` and `G = V_A V_Aᵀ + μ I`. The line
    c minimises `(s - F_A c)ᵀ G⁻¹ (s - F_A c)` with slope >= 0. The estimate is `F c + V V_Aᵀ G⁻¹ (s - F_A c)`.
    """

    prior_P: Values
    """Expected cross-encoder score [p] of each document of a query's pool, up to scale."""
    vector_PM: Floats
    mu: float = 1.0
    """μ, the penalty on residuals, for unit vectors. A large μ keeps the prior's order."""

    def estimate(self, read_S: Ints, score_S: Values) -> Values:
        read_SM = self.vector_PM[read_S].astype(np.float64)
        inverse_SS = np.linalg.inv(read_SM @ read_SM.T + self.mu * np.eye(len(read_S)))

        def solve(right: np.ndarray) -> np.ndarray:
            return np.asarray(inverse_SS @ right)

        trend_2, trend_S = _trend(self.prior_P[read_S], score_S, solve)
        residual_P = _products(self.vector_PM, read_SM.T @ solve(score_S - trend_S))
        return np.asarray(trend_2[0] + trend_2[1] * self.prior_P + residual_P)


def _products(vector_PM: Floats, query_M: Values) -> Values:
    return np.asarray(vector_PM @ query_M.astype(vector_PM.dtype), dtype=np.float64)


def _trend(prior_S: Values, score_S: Values, solve: Callable[[np.ndarray], np.ndarray]) -> tuple[Values, Values]:
    """Fit intercept and slope (at least 0) by generalised least squares. Returns both, and the line's values [s]."""
    design_S2 = np.stack([np.ones(len(prior_S)), prior_S], axis=1)
    weighted_S2 = solve(design_S2)
    normal_22, right_2 = design_S2.T @ weighted_S2, weighted_S2.T @ score_S
    # If the prior is equal for all documents that were read, there is no slope.
    spread = np.ptp(prior_S) > CUT * max(1.0, float(np.abs(prior_S).max(initial=0)))
    line_2 = np.linalg.solve(normal_22, right_2) if spread else np.array([0.0, -1.0])
    if line_2[1] < 0 or not np.isfinite(line_2).all():
        line_2 = np.array([right_2[0] / normal_22[0, 0], 0.0])
    return line_2, design_S2 @ line_2


@dataclass(frozen=True)
class LeastSquares:
    """Fits a query vector to the scores, and estimates by (1 - λ) fitted vector + λ base query vector (AXN)."""

    vector_PM: Floats
    base_M: Values | None = None
    lam: float = 0.0
    matching: "Matching" = field(default_factory=lambda: Matching(0.0, 1.0))

    def estimate(self, read_S: Ints, score_S: Values) -> Values:
        fitted_M: Values = np.zeros(self.vector_PM.shape[1])
        if self.lam < 1:
            read_SM = self.vector_PM[read_S].astype(np.float64)
            fitted_M = np.asarray(np.linalg.lstsq(read_SM, self.matching(score_S), rcond=CUT)[0], np.float64)
        base_M = 0.0 if self.base_M is None else self.lam * self.base_M
        return self.matching.undo(_products(self.vector_PM, (1 - self.lam) * fitted_M + base_M))


@dataclass(frozen=True)
class Matching:
    """A linear map of cross-encoder scores s that gives them mean and spread of base scores: β (s - α), as in AXN.

    >>> matching = Matching.of(np.array([0.0, 2.0]), np.array([0.4, 0.6]))
    >>> matching(np.array([0.0, 2.0])).tolist()
    [0.4, 0.6]
    """

    alpha: float
    beta: float

    @classmethod
    def of(cls, score_N: Values, base_N: Values) -> "Matching":
        """Fit the map to scores [n] and base scores [n]: the identity if all scores or all base scores are equal."""
        spread, base_spread = float(np.std(score_N)), float(np.std(base_N))
        if not spread or not base_spread:
            return cls(0.0, 1.0)
        beta = base_spread / spread
        return cls(float(np.mean(score_N)) - float(np.mean(base_N)) / beta, beta)

    def __call__(self, score_N: Values) -> Values:
        return np.asarray(self.beta * (score_N - self.alpha))

    def undo(self, matched_N: Values) -> Values:
        return np.asarray(matched_N / self.beta + self.alpha)
