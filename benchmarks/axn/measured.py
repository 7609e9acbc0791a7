"""What a row finds: the share of the scorer's own best, nDCG of the judgements, by the number of calls; and choices."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.axn.rows import Row, Setting
from benchmarks.axn.world import World
from benchmarks.statistics import Estimate, paired
from rayhier.arrays import Ints, Values
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import whole_scan

NDCG = "nDCG@10"
SHOWN = 100
"""First documents of an order that nDCG reads."""
ASKED = ((1, 100), (10, 100), (100, 500))
"""Best documents that are looked for, and calls: Top-1@100, Top-10@100, Top-100@500."""


def recall(order: Sequence[Ints], score_QN: Values, k: int) -> Values:
    """Share [q] of the k documents that score best that are the first k of each query's order."""
    best_QK = np.argsort(-score_QN, axis=1, kind="stable")[:, :k]
    return np.array([len(np.intersect1d(own[:k], best)) / k for own, best in zip(order, best_QK, strict=True)])


def ndcg(world: World, queries: Queries, order: Sequence[Ints]) -> Values:
    """NDCG@10 [q] of each query's order."""
    row_QK = np.full((len(order), SHOWN), -1)
    for query, own in enumerate(order):
        row_QK[query, : len(own[:SHOWN])] = own[:SHOWN]
    place_QK = np.broadcast_to(-np.arange(SHOWN, dtype=np.float32), row_QK.shape)
    ids = pa.array(world.documents.results, pa.string())
    return Judge(queries, (NDCG,)).values(whole_scan(place_QK, row_QK, ids, 0))[NDCG]


@dataclass(frozen=True)
class Found:
    """What a row found for every query [q], by measure, for instance Top-100@500."""

    row: Row
    values: dict[str, Values]

    def mean(self, measure: str) -> float:
        """Mean over the queries; NaN where it was not measured."""
        return float(self.values[measure].mean()) if measure in self.values else math.nan

    def over(self, other: "Found", measure: str) -> Estimate:
        """Points by which the row is above another, with their 95% interval."""
        return paired(self.values[measure], other.values[measure])


def named(k: int, calls: int) -> str:
    """Name of a measure."""
    return f"Top-{k}@{calls}"


def measured(setting: Setting, row: Row, asked: Iterable[tuple[int, int]] = ASKED) -> Found:
    """Measure a row for some numbers of best documents and calls; nDCG at each number of calls."""
    values: dict[str, Values] = {}
    for calls in dict.fromkeys(calls for _, calls in asked):
        order, _ = setting.run(row, calls)
        for k, own in asked:
            if own == calls:
                values[named(k, calls)] = recall(order, setting.score_QN, k)
        values[f"{NDCG}@{calls}"] = ndcg(setting.world, setting.queries, order)
    return Found(row, values)


def exhaustive(setting: Setting) -> Found:
    """The order by the scores of all documents, which no budget reaches."""
    order = list(np.argsort(-setting.score_QN, axis=1, kind="stable"))
    values = {named(k, calls): np.ones(len(order)) for k, calls in ASKED}
    return Found(
        Row("every document scored"),
        values | {f"{NDCG}@{calls}": ndcg(setting.world, setting.queries, order) for _, calls in ASKED},
    )


def tuned(held: Setting, tried: Sequence[Row]) -> list[Row]:
    """For each measure, the row of several that finds most for the held-out queries, the first of equals."""
    found = [measured(held, one) for one in tried]
    return [tried[int(np.argmax([own.mean(named(*asked)) for own in found]))] for asked in ASKED]


def measured_each(setting: Setting, row: Row, chosen: Sequence[Row]) -> Found:
    """Measure a row in settings chosen for each measure; nDCG at 100 calls is that of the one for Top-10@100."""
    values: dict[str, Values] = {}
    for own, asked in zip(chosen, ASKED, strict=True):
        values |= measured(setting, own, [asked]).values
    return Found(row, values)
