"""Measures on dev that pick the best epoch: over all dev queries and over those with new answers, with their error."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from rayhier.arrays import Floats, Values
from rayhier.dataset.documents import Documents
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries, new_answers
from rayhier.dataset.ranking import Ranking
from rayhier.search.exact import exact

MEASURES = ("nDCG@10", "R@100")
DEPTH = 100


class DevJudge:
    """Judges rankings of the dev queries: all of them, and those with new answers, which no train query has."""

    def __init__(self, queries: Queries, measures: tuple[str, ...], answers: Collection[str]) -> None:
        """Judge by measures, named as `nDCG@10`; `answers` are the documents that answer train queries."""
        self.judge = Judge(queries, measures)
        new_Q = new_answers(queries, answers)
        self.groups = {"": np.ones(len(new_Q), dtype=bool)}
        if new_Q.any() and not new_Q.all():
            self.groups[" new"] = new_Q

    def measured(self, ranking: Ranking) -> "Measured":
        """Compute each measure's mean over each group of queries, and what every query adds to the mean of these.

        `R@100` is over all queries, `R@100 new` over those with new answers.
        """
        values, measures = self.judge.values(ranking), {}
        share_Q = np.zeros(len(self.judge.query_ids))
        for group, own_Q in self.groups.items():
            for name, value_Q in values.items():
                measures[f"{name}{group}"] = float(value_Q[own_Q].mean())
                share_Q += np.where(own_Q, value_Q, 0) * len(own_Q) / own_Q.sum()
        return Measured(measures, share_Q / len(measures))


@dataclass(frozen=True)
class Measured:
    """Measures on dev by name, and each query's contribution [q]; the mean of either is `dev`."""

    values: dict[str, float]
    share_Q: Values

    @property
    def dev(self) -> float:
        """Mean of the measures; higher is better."""
        return float(np.mean(list(self.values.values())))


def error_to_best(measured: Measured, kept: dict[str, Tensor]) -> float:
    """Compute the standard error, over queries, of the difference to the best measurement, `kept["top"]` [q].

    Where `measured` is the best so far, it replaces `kept["top"]`. Returns 0 for the first measurement.
    """
    top_Q = kept["top"].numpy()
    if not len(top_Q) or measured.share_Q.mean() > top_Q.mean():
        kept["top"] = torch.from_numpy(measured.share_Q)
    return float(np.std(measured.share_Q - top_Q) / len(top_Q) ** 0.5) if len(top_Q) else 0.0


class ExactMeasure:
    """Dev measures of an encoder: nDCG and recall of an exact search, without an index."""

    def __init__(self, queries: Queries, documents: Documents, answers: Collection[str] = ()) -> None:
        self.judge = DevJudge(queries, MEASURES, answers)
        self.ids, self.results = (pa.array(names, pa.string()) for names in (documents.ids, documents.results))

    def __call__(self, document_NM: Floats, dev_QM: Floats) -> Measured:
        """NDCG@10 and R@100 over all queries and, where there are some, over those with new answers."""
        return self.judge.measured(exact(dev_QM, document_NM, self.ids, self.results, DEPTH))
