"""ir-measures on rankings of results."""

from collections.abc import Sequence
from dataclasses import dataclass

import ir_measures
import numpy as np
import numpy.typing as npt

from rayhier.evaluate.found import Ranking
from rayhier.storage.columns import Floats

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Queries:
    """Queries with judgements: ids [q], vectors [q, m] of the encoder at hand, grades by query and document id."""

    ids: Sequence[str]
    vector_QM: Floats
    grades: dict[str, dict[str, int]]
    texts: Sequence[str] = ()
    """What an encoder that trained whole encodes again, and what BM25 reads."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def answered(self) -> bool:
        """Whether any document is judged above zero."""
        return any(grade > 0 for grades in self.grades.values() for grade in grades.values())

    def with_vectors(self, vector_QM: Floats) -> "Queries":
        """The same queries under another encoder."""
        return Queries(self.ids, vector_QM, self.grades, self.texts)


class Judge:
    """Measures of rankings by named measures (`nDCG@10`, `R@100`, …)."""

    def __init__(self, queries: Queries, measures: Sequence[str]) -> None:
        self.query_ids = list(queries.ids)
        self._place = {query: place for place, query in enumerate(self.query_ids)}
        self.measures = tuple(measures)
        self.parsed = {ir_measures.parse_measure(name): name for name in measures}
        self.evaluator = ir_measures.evaluator(list(self.parsed), queries.grades)

    def run(self, ranking: Ranking) -> dict[str, dict[str, float]]:
        """A TREC run: query id -> document id -> score."""
        run = {}
        for query, rows, scores in zip(self.query_ids, ranking.row_QK, ranking.score_QK, strict=True):
            found = rows >= 0
            run[query] = dict(zip(ranking.ids[rows[found]].tolist(), scores[found].tolist(), strict=True))
        return run

    def values(self, ranking: Ranking) -> dict[str, Values]:
        """Each measure of every judged query, [q]; a query that finds nothing has 0."""
        found = {name: np.zeros(len(self.query_ids)) for name in self.measures}
        for value in self.evaluator.iter_calc(self.run(ranking)):
            found[self.parsed[value.measure]][self._place[value.query_id]] = value.value
        return found

    def mean(self, ranking: Ranking) -> dict[str, float]:
        """Each measure's mean over the judged queries."""
        return means(self.values(ranking))


def means(values: dict[str, Values]) -> dict[str, float]:
    """Mean over queries of each measure."""
    return {name: float(value_Q.mean()) for name, value_Q in values.items()}
