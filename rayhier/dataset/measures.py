"""Measures of rankings, computed by ir-measures."""

from collections.abc import Sequence

import ir_measures
import numpy as np

from rayhier.arrays import Values
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import Ranking


class Judge:
    """Computes named measures (`nDCG@10`, `R@100`, …) of rankings of fixed queries."""

    def __init__(self, queries: Queries, measures: Sequence[str]) -> None:
        self.query_ids = list(queries.ids)
        self._place = {query: place for place, query in enumerate(self.query_ids)}
        self.measures = tuple(measures)
        self.parsed = {ir_measures.parse_measure(name): name for name in measures}
        self.evaluator = ir_measures.evaluator(list(self.parsed), queries.grades)

    def run(self, ranking: Ranking) -> dict[str, dict[str, float]]:
        """Convert a ranking to a TREC run: query id -> document id -> score."""
        run = {}
        for query, rows, scores in zip(self.query_ids, ranking.row_QK, ranking.score_QK, strict=True):
            found = rows >= 0
            run[query] = dict(zip(ranking.ids[rows[found]].tolist(), scores[found].tolist(), strict=True))
        return run

    def values(self, ranking: Ranking) -> dict[str, Values]:
        """Each measure of every judged query, [q]; a query without results has 0."""
        values = {name: np.zeros(len(self.query_ids)) for name in self.measures}
        for value in self.evaluator.iter_calc(self.run(ranking)):
            values[self.parsed[value.measure]][self._place[value.query_id]] = value.value
        return values

    def mean(self, ranking: Ranking) -> dict[str, float]:
        """Each measure's mean over the judged queries."""
        return means(self.values(ranking))


def means(values: dict[str, Values]) -> dict[str, float]:
    """Mean of each measure over the queries."""
    return {name: float(value_Q.mean()) for name, value_Q in values.items()}
