"""Measures of rankings against judgements, computed by the package ir-measures."""

from collections.abc import Sequence

import ir_measures
import numpy as np

from rayhier.arrays import Values
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import Ranking


class Judge:
    def __init__(self, queries: Queries, measures: Sequence[str]) -> None:
        self.query_ids = list(queries.ids)
        self._place = {query: place for place, query in enumerate(self.query_ids)}
        self.measures = tuple(measures)
        self.parsed = {ir_measures.parse_measure(name): name for name in measures}
        self.evaluator = ir_measures.evaluator(list(self.parsed), queries.grades)

    def run(self, ranking: Ranking, ids: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
        """Convert a ranking to a TREC run, query -> document -> score. Its rows are all queries, or the given `ids`."""
        run = {}
        named = self.query_ids if ids is None else ids
        for query, rows, scores in zip(named, ranking.row_QK, ranking.score_QK, strict=True):
            present = rows >= 0
            run[query] = dict(zip(ranking.ids[rows[present]].tolist(), scores[present].tolist(), strict=True))
        return run

    def values(self, ranking: Ranking) -> dict[str, Values]:
        return self.values_of(self.run(ranking))

    def values_of(self, run: dict[str, dict[str, float]]) -> dict[str, Values]:
        """Compute each measure for every query of a TREC run, name -> [q]. A query without results has 0.

        Documents with equal scores count in the order of the run, as a ranking shows them. trec_eval has another order.
        """
        values = {name: np.zeros(len(self.query_ids)) for name in self.measures}
        places = {
            query: {name: -place for place, name in enumerate(sorted(scores, key=scores.__getitem__, reverse=True))}
            for query, scores in run.items()
        }
        for value in self.evaluator.iter_calc(places):
            values[self.parsed[value.measure]][self._place[value.query_id]] = value.value
        return values

    def mean(self, ranking: Ranking) -> dict[str, float]:
        return means(self.values(ranking))

    def mean_of(self, run: dict[str, dict[str, float]]) -> dict[str, float]:
        return means(self.values_of(run))


def means(values: dict[str, Values]) -> dict[str, float]:
    return {name: float(value_Q.mean()) for name, value_Q in values.items()}
