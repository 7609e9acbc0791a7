"""Statistics of curves that hold every query: shares for a recall, paired resamples, and pooled ratios.

Shapes: P points of a curve (beams), Q queries, R resamples (the first is the sample itself), S shares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.tables import mean, spread
from rayhier.arrays import Bools, Ints, Values
from rayhier.evaluate.significance import bootstrap

RESAMPLES, RANDOMISED = 2_000, 10_000
INTERVAL = (2.5, 97.5)


@dataclass(frozen=True)
class Curve:
    """What every query found and paid at every beam; visited and cost are fractions of the corpus."""

    recall_PQ: Values
    visited_PQ: Values
    cost_PQ: Values
    exact_Q: Values
    """Recall of a scan of all documents with that encoder."""

    @classmethod
    def read(cls, columns: Mapping[str, npt.NDArray[Any]]) -> "Curve":
        """The curve of columns that were kept (benchmarks/quality/systems.py writes them)."""
        return cls(*(columns[name].astype(np.float64) for name in ("recall", "visited", "cost", "exact")))

    def of(self, own_Q: npt.NDArray[np.bool_]) -> "Curve":
        """The curve of some of the queries."""
        columns = (self.recall_PQ, self.visited_PQ, self.cost_PQ, self.exact_Q)
        return Curve(*(column[..., own_Q] for column in columns))


@dataclass(frozen=True)
class Estimate:
    """A value of the sample and its 95% percentile interval."""

    value: float
    low: float
    high: float

    @property
    def shown(self) -> str:
        """A difference in points with its interval."""
        return f"{self.value:+.1f} [{self.low:.1f}, {self.high:.1f}]"


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """Mean over seeds, point by point and query by query; as long as the shortest."""
    points = min(len(curve.recall_PQ) for curve in curves)
    recall_PQ, visited_PQ, cost_PQ = (
        np.mean([getattr(curve, name)[:points] for curve in curves], axis=0)
        for name in ("recall_PQ", "visited_PQ", "cost_PQ")
    )
    return Curve(recall_PQ, visited_PQ, cost_PQ, np.mean([curve.exact_Q for curve in curves], axis=0))


def sample(queries: int) -> Values:
    """Weights [1, q] of the sample itself."""
    return np.full((1, queries), 1 / queries)


def draws(queries: int, resamples: int = RESAMPLES, seed: int = 0) -> Values:
    """Weights [r, q] of the sample itself, then of resamples of the queries with replacement."""
    drawn = np.random.default_rng(seed).multinomial(queries, np.full(queries, 1 / queries), size=resamples)
    return np.concatenate([sample(queries), drawn / queries])


def reached(curve: Curve, shares: Sequence[float], axis: str = "visited", weight_RQ: Values | None = None) -> Values:
    """Visited (or cost) [r, s] at which mean recall first reaches shares of exact recall, linear between points.

    NaN where it never does; of the sample alone without weights.
    """
    weight_RQ = sample(len(curve.exact_Q)) if weight_RQ is None else weight_RQ
    recall_RP = weight_RQ @ curve.recall_PQ.T
    x_RP = weight_RQ @ getattr(curve, f"{axis}_PQ").T
    target_RS = (weight_RQ @ curve.exact_Q)[:, None] * np.asarray(shares)
    # A query's exact recall is a float of 32 bits somewhere: a target met to the last digit is met.
    there_RSP = recall_RP[:, None, :] >= target_RS[:, :, None] - 1e-9
    place_RS = there_RSP.argmax(axis=2)
    before_RS = np.maximum(place_RS - 1, 0)
    r = np.arange(len(weight_RQ))[:, None]
    low, high = recall_RP[r, before_RS], recall_RP[r, place_RS]
    part = np.where(place_RS > 0, (target_RS - low) / np.where(high > low, high - low, 1.0), 0.0)
    x_RS = x_RP[r, before_RS] + part * (x_RP[r, place_RS] - x_RP[r, before_RS])
    return np.where(there_RSP.any(axis=2), x_RS, np.nan)


def recall_at(curve: Curve, shares: Sequence[float], axis: str = "visited", weight_RQ: Values | None = None) -> Values:
    """Mean recall [r, s] at shares visited (or costs), linear between points; of the sample alone without weights.

    NaN for a share beyond the sample's first or last point; a resample beyond its own reads that one.
    """
    weight_RQ = sample(len(curve.exact_Q)) if weight_RQ is None else weight_RQ
    x_RP, recall_RP = weight_RQ @ getattr(curve, f"{axis}_PQ").T, weight_RQ @ curve.recall_PQ.T
    # A taller tree's beams are not nested: a wider one may visit a little less.
    order_RP = np.argsort(x_RP, axis=1, kind="stable")
    x_RP, recall_RP = (np.take_along_axis(own_RP, order_RP, axis=1) for own_RP in (x_RP, recall_RP))
    found_RS = np.stack([np.interp(shares, x_P, recall_P) for x_P, recall_P in zip(x_RP, recall_RP, strict=True)])
    share_S = np.asarray(shares)
    found_RS[:, (share_S < x_RP[0, 0]) | (share_S > x_RP[0, -1] + 1e-9)] = np.nan
    return found_RS


def ratio(system: Curve, control: Curve, shares: Sequence[float], axis: str = "visited") -> Values:
    """Visited (cost) of a system over a control's [r, s] for shares of exact recall, the same queries in both.

    A control that never gets there counts as there at its last point; a system that does not has an infinite ratio.
    """
    weight_RQ = draws(len(system.exact_Q))
    ours_RS, theirs_RS = (reached(curve, shares, axis, weight_RQ) for curve in (system, control))
    last_R1 = weight_RQ @ getattr(control, f"{axis}_PQ")[-1][:, None]
    theirs_RS = np.where(np.isnan(theirs_RS), last_R1, theirs_RS)
    return np.asarray(np.where(np.isnan(ours_RS), np.inf, ours_RS) / theirs_RS)


def difference(system: Curve, control: Curve, shares: Sequence[float]) -> Values:
    """Recall of a system less a control's [r, s] at shares visited, the same queries in both."""
    weight_RQ = draws(len(system.exact_Q))
    return recall_at(system, shares, "visited", weight_RQ) - recall_at(control, shares, "visited", weight_RQ)


def geometric(ratios: Sequence[Values]) -> Values:
    """Geometric mean of ratios, element by element: over collections, resample by resample."""
    return np.asarray(np.exp(np.mean(np.log(ratios), axis=0)))


def paired(ours_Q: Values, theirs_Q: Values, family_Q: Ints | None = None) -> Estimate:
    """Points by which values of queries are above others of the same queries, with their 95% interval.

    Resamples draw whole families of queries, or queries without `family_Q`.
    """
    found = bootstrap(100 * (ours_Q - theirs_Q)[:, None], family_Q)[0]
    return Estimate(found.difference, found.low, found.high)


def randomised(ours_Q: Values, theirs_Q: Values, family_Q: Ints) -> float:
    """Return the p-value of a two-sided randomisation test: families exchange the two systems' values by chance.

    M. D. Smucker, J. Allan, B. Carterette, "A comparison of statistical significance tests for information retrieval
    evaluation" (CIKM 2007).
    """
    sum_F = np.bincount(family_Q, ours_Q - theirs_Q)
    sign_RF = np.random.default_rng(0).choice((-1.0, 1.0), (RANDOMISED, len(sum_F)))
    return float(1 + (np.abs(sign_RF @ sum_F) >= abs(sum_F.sum()) - 1e-9).sum()) / (1 + RANDOMISED)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values of tests that are made together (S. Holm, 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(1, np.maximum.accumulate(scaled))
    return [round(float(p), 9) for p in corrected]


def groups(new_Q: Bools) -> dict[str, Bools]:
    """Queries [q] of each group by its name: all, and those with new answers where some are such and others not."""
    every = {"all": np.ones(len(new_Q), dtype=bool)}
    return every | ({"new answers": new_Q} if new_Q.any() and not new_Q.all() else {})


def compared(ours_SQ: Values, control_SQ: Values | None) -> list[str]:
    """Cells of a table: the mean of values [s, q] ± half the range over seeds, and points above a control's."""
    seeds = ours_SQ.mean(axis=1).tolist()
    shown = spread(seeds) if len(seeds) > 1 else mean(seeds)
    return [shown, "" if control_SQ is None else paired(ours_SQ.mean(axis=0), control_SQ.mean(axis=0)).shown]


def estimate(value_R: Values) -> Estimate:
    """The sample's value and the interval of its resamples'."""
    low, high = np.percentile(value_R[1:], INTERVAL)
    return Estimate(float(value_R[0]), round(float(low), 9), round(float(high), 9))
