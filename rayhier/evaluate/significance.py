"""Test if a difference is more than chance, by a paired bootstrap (Efron, and Sakai 2006 for retrieval).

Resamples draw whole families of queries (`dataset.families`). Values of queries in one family are not independent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from rayhier.arrays import Bools, Ints, Values
from rayhier.evaluate.baselines.untrained import UNTRAINED
from rayhier.evaluate.curve import mean_curve, read_values
from rayhier.evaluate.evaluation import Evaluation, SeedResult
from rayhier.spec import JobSpec
from rayhier.spec.evaluate import VISITED

RESAMPLES = 10_000
DRAWS = 4_000_000
SEED = 0
INTERVAL = (0.025, 0.975)
FEWEST = 20
"""Fewest families of queries for an interval that can exclude chance. Intervals of fewer families are too narrow."""
QueryGroup = Literal["all", "new answers"]
"""Group of queries: all queries, or queries with new answers."""


class Difference(BaseModel):
    """Difference of two systems (`system` minus `baseline`) in a measure: mean over queries, and 95% interval."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    system: str
    baseline: str
    measure: str
    visited: float
    queries: QueryGroup = "all"
    difference: float
    low: float
    high: float
    wins: float
    families: int = 0

    @property
    def doubt(self) -> str:
        """Why the difference may be chance, as the end of a sentence. Empty if the interval excludes chance."""
        if self.low == self.high == 0:
            return ", and no family of queries gained or lost on average"
        if self.families < FEWEST:
            return f", but {self.families} famil{'y' if self.families == 1 else 'ies'} cannot tell this from chance"
        return ", which may be chance" if self.low <= 0 <= self.high else ""


@dataclass(frozen=True)
class Interval:
    """A mean difference over queries, and its 95% interval from `low` to `high`."""

    difference: float
    low: float
    high: float
    wins: float


@dataclass(frozen=True)
class Compared:
    """Two systems to compare in a measure: `system` minus `baseline` for each query, `difference_Q` [q]."""

    system: str
    baseline: str
    measure: str
    visited: float
    difference_Q: Values
    queries: QueryGroup = "all"


def groups(evaluation: Evaluation) -> dict[QueryGroup, Bools]:
    """Mark the queries [q] of each group. `new answers` is left out if it has no query or all queries."""
    new_Q = evaluation.new_Q
    marked: dict[QueryGroup, Bools] = {"all": np.ones(len(new_Q), dtype=bool)}
    return marked | ({"new answers": new_Q} if new_Q.any() and not new_Q.all() else {})


def differences(spec: JobSpec, evaluation: Evaluation) -> list[Difference]:
    """Compute all differences that the report shows. The value of a query is the mean over seeds."""
    compared, rows = list(pairs(spec, evaluation)), []
    for group, query_Q in groups(evaluation).items():
        tested, family_Q = [pair for pair in compared if pair.queries == group], evaluation.family_Q[query_Q]
        if not tested:
            continue
        intervals = bootstrap(np.stack([pair.difference_Q for pair in tested], axis=1), family_Q)
        for pair, interval in zip(tested, intervals, strict=True):
            named = {field.name: getattr(pair, field.name) for field in fields(pair) if field.name != "difference_Q"}
            measured = {name: round(value, 6) for name, value in asdict(interval).items()}
            families = len(np.unique(family_Q))
            rows.append(Difference.model_validate({**named, **measured, "families": families}))
    return rows


def pairs(spec: JobSpec, evaluation: Evaluation) -> Iterator[Compared]:
    """Yield the pairs of systems that the report compares, with their differences for each query.

    At equal shares visited: the router and each baseline with a curve. For each group of queries: exact search by both
    encoders, the index with and without BM25, and with and without re-ranking.
    """
    seeds, router = evaluation.seeds, str(spec.router.type)
    measure = spec.evaluate.deepest_recall
    curves = {name: mean_curve([result.curves[name] for result in seeds]) for name in seeds[0].curves}
    for name, curve in curves.items():
        for share in VISITED if name != router else ():
            ours, theirs = (read_values(points, share, measure) for points in (curves[router], curve))
            if ours is not None and theirs is not None:
                yield Compared(router, name, measure, share, ours - theirs)
    hybrid, reranked = f"{router}+bm25", f"{router}+{spec.search.rerank.type}"
    searched = [searched_by(spec, result) for result in seeds]
    for system, baselines in (
        ("exact_same_encoder", [["exact"] * len(seeds)]),
        (hybrid, [[name] * len(seeds) for name in (router, "bm25", UNTRAINED)]),
        (reranked, [searched]),
    ):
        yield from _whole_searches(spec, evaluation, system, baselines)


def _whole_searches(
    spec: JobSpec, evaluation: Evaluation, system: str, baselines: Sequence[Sequence[str]]
) -> Iterator[Compared]:
    values = [result.values for result in evaluation.seeds]
    if any(system not in value for value in values):
        return
    for measure in spec.evaluate.measures:
        ours = np.mean([value[system][measure] for value in values], axis=0)
        for names in baselines:
            if any(name not in value for value, name in zip(values, names, strict=True)):
                continue
            theirs = np.mean([value[name][measure] for value, name in zip(values, names, strict=True)], axis=0)
            for group, query_Q in groups(evaluation).items():
                baseline = " or ".join(dict.fromkeys(names))
                yield Compared(system, baseline, measure, 1.0, (ours - theirs)[query_Q], group)


def searched_by(spec: JobSpec, result: SeedResult) -> str:
    router = str(spec.router.type)
    names = {"dense": router, "hybrid": f"{router}+bm25", "bm25": "bm25"}
    return names[result.settled(spec).search.usual_mode]


def bootstrap(
    difference_QP: npt.NDArray[np.float64], family_Q: Ints | None = None, seed: int = SEED
) -> Sequence[Interval]:
    """Compute means of paired differences [q, p] and percentile intervals of the means, from resamples of families.

    `family_Q` numbers the family [q] of each query. None: each query is a family.

    >>> bootstrap(np.array([[0.5], [0.5]]))
    [Interval(difference=0.5, low=0.5, high=0.5, wins=1.0)]
    """
    number_Q = np.arange(len(difference_QP)) if family_Q is None else np.unique(family_Q, return_inverse=True)[1]
    size_F = np.bincount(number_Q)
    sum_FP = np.zeros((len(size_F), difference_QP.shape[1]))
    np.add.at(sum_FP, number_Q, difference_QP)
    generator, share_F = np.random.default_rng(seed), np.full(len(size_F), 1 / len(size_F))
    chunk = max(1, DRAWS // len(size_F))
    means = []
    for begin in range(0, RESAMPLES, chunk):
        # The number of times that each family is drawn defines a resample.
        drawn_RF = generator.multinomial(len(size_F), share_F, size=min(chunk, RESAMPLES - begin))
        means.append(drawn_RF @ sum_FP / (drawn_RF @ size_F)[:, None])
    mean_RP = np.concatenate(means)
    low_P, high_P = np.quantile(mean_RP, INTERVAL, axis=0)
    wins_P = (mean_RP > 0).mean(axis=0)
    return [
        Interval(*(float(value) for value in values))
        for values in zip(difference_QP.mean(axis=0), low_P, high_P, wins_P, strict=True)
    ]
