"""Measure rankings of dev queries to pick the best epoch, with the error of each comparison."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from rayhier.arrays import Floats, Values
from rayhier.dataset.documents import Documents, result_numbers
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries, new_answers
from rayhier.dataset.ranking import Ranking, whole_scan
from rayhier.search.segment.exact import exact_rows
from rayhier.train.group import WorkerGroup

Measure = Callable[[Floats, Floats], "DevMeasured"]
"""Function that measures searches with vectors of documents [n, m] and of dev queries [q, m]."""
MEASURES = ("nDCG@10", "R@100")
DEPTH = 100


class DevJudge:
    """Measures rankings of all dev queries, and of the dev queries with new answers."""

    def __init__(self, queries: Queries, measures: tuple[str, ...], answers: Collection[str]) -> None:
        self.judge = Judge(queries, measures)
        new_Q = new_answers(queries, answers)
        self.groups = {"": np.ones(len(new_Q), dtype=bool)}
        if new_Q.any() and not new_Q.all():
            self.groups[" new"] = new_Q

    def measured(self, ranking: Ranking) -> "DevMeasured":
        """Compute each measure's mean over all queries and over new answers, named like `R@100 new`."""
        values, measures = self.judge.values(ranking), {}
        share_Q = np.zeros(len(self.judge.query_ids))
        for group, in_group_Q in self.groups.items():
            for name, value_Q in values.items():
                measures[f"{name}{group}"] = float(value_Q[in_group_Q].mean())
                share_Q += np.where(in_group_Q, value_Q, 0) * len(in_group_Q) / in_group_Q.sum()
        return DevMeasured(measures, share_Q / len(measures))


@dataclass(frozen=True)
class DevMeasured:
    """Measures on dev: values by name, and each query's contribution [queries]. Both have the same mean."""

    values: dict[str, float]
    share_Q: Values

    @property
    def dev(self) -> float:
        return float(np.mean(list(self.values.values())))


def error_to_best(measured: DevMeasured, kept: dict[str, Tensor]) -> float:
    """Compute the standard error of the difference to the best measurement, which `kept["top"]` holds."""
    top_Q = kept["top"].numpy()
    if not len(top_Q) or measured.share_Q.mean() > top_Q.mean():
        kept["top"] = torch.from_numpy(measured.share_Q)
    return float(np.std(measured.share_Q - top_Q) / len(top_Q) ** 0.5) if len(top_Q) else 0.0


class ExactMeasure:
    def __init__(self, queries: Queries, documents: Documents, answers: Collection[str] = ()) -> None:
        self.judge, self.group = DevJudge(queries, MEASURES, answers), WorkerGroup()
        ids, self.results = (pa.array(names, pa.string()) for names in (documents.ids, documents.results))
        self.result_N = result_numbers(ids, self.results)

    def __call__(self, document_NM: Floats, dev_QM: Floats) -> DevMeasured:
        """Measure exact search. Each worker searches for a share of the queries."""
        search = partial(exact_rows, vector_NM=document_NM, result_N=self.result_N, k=DEPTH)
        return self.judge.measured(whole_scan(*self.group.spread(search, dev_QM), self.results, len(document_NM)))
