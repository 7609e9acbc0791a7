"""Measure ReTreever's vectors of several sizes on dev queries, to pick the best epoch."""

from collections.abc import Collection, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats, Ints
from rayhier.dataset.documents import Documents, result_numbers
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import whole_scan
from rayhier.search.segment.exact import exact_rows
from rayhier.spec.train.retreever import Comparison
from rayhier.train.dev_measures import DEPTH, MEASURES, DevJudge, DevMeasured
from rayhier.train.group import WorkerGroup

MOST_SEARCHED = 100_000
"""Largest number of documents among which dev queries search: the queries' answers, and random other documents."""
MOST_NUMBERS = 1 << 28
"""Largest number of numbers in the vectors of all searched documents together, at the largest size of vectors."""


class SizesMeasure:
    def __init__(self, queries: Queries, documents: Documents, answers: Collection[str] = (), numbers: int = 1) -> None:
        """Take dev queries. `answers` are ids of train queries' answers, `numbers` the size of the largest vectors."""
        self.judge = DevJudge(queries, MEASURES, answers)
        self.row_N = searched(queries, documents.results, min(MOST_SEARCHED, MOST_NUMBERS // numbers))
        ids, self.results = (
            pa.array([names[row] for row in self.row_N], pa.string()) for names in (documents.ids, documents.results)
        )
        self.result_N, self.group = result_numbers(ids, self.results), WorkerGroup()

    def __call__(self, document: Sequence[Floats], dev: Sequence[Floats], similarity: Comparison) -> DevMeasured:
        values: dict[str, float] = {}
        share_Q = np.zeros(len(self.judge.judge.query_ids))
        for document_NK, dev_QK in zip(document, dev, strict=True):
            search = partial(exact_rows, vector_NM=document_NK, result_N=self.result_N, k=DEPTH, comparison=similarity)
            best = self.group.spread(search, dev_QK)
            measured = self.judge.measured(whole_scan(*best, self.results, len(document_NK)))
            values |= {f"{name} of {dev_QK.shape[1]}": value for name, value in measured.values.items()}
            share_Q += measured.share_Q / len(document)
        return DevMeasured(values, share_Q)


def searched(queries: Queries, results: Sequence[str], most: int) -> Ints:
    n = len(results)
    if n <= most:
        return np.arange(n)
    answers = {result for grades in queries.grades.values() for result, grade in grades.items() if grade > 0}
    answer_N = np.array([result in answers for result in results])
    others = np.random.default_rng(0).permutation(np.flatnonzero(~answer_N))
    sample = others[: max(0, most - int(answer_N.sum()))]
    return np.sort(np.concatenate([np.flatnonzero(answer_N), sample]))
