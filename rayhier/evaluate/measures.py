"""ir-measures on ranked rows of a document matrix."""

from collections.abc import Sequence
from dataclasses import dataclass

import ir_measures
import numpy as np

from rayhier.search.lists import Ints
from rayhier.storage.columns import Floats


@dataclass(frozen=True)
class Queries:
    """Queries with judgements: ids [q], vectors [q, m] of the encoder at hand, grades by query and document id."""

    ids: Sequence[str]
    vector_QM: Floats
    grades: dict[str, dict[str, int]]
    texts: Sequence[str] = ()
    """What an encoder that trained whole encodes again."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def answered(self) -> bool:
        """Whether any document is judged above zero."""
        return any(grade > 0 for grades in self.grades.values() for grade in grades.values())

    def with_vectors(self, vector_QM: Floats) -> "Queries":
        """The same queries under another encoder."""
        return Queries(self.ids, vector_QM, self.grades, self.texts)


@dataclass(frozen=True)
class Ranking:
    """Best documents of each query: rows [q, k] of the document matrix, -1 where there is none, scores [q, k]."""

    score_QK: Floats
    row_QK: Ints


class Judge:
    """Measures of rankings by named measures (`nDCG@10`, `R@100`, …)."""

    def __init__(self, queries: Queries, document_ids: Sequence[str], measures: Sequence[str]) -> None:
        self.query_ids = list(queries.ids)
        self.document_ids = np.asarray(document_ids, dtype=object)
        self.measures = tuple(measures)
        self.parsed = {ir_measures.parse_measure(name): name for name in measures}
        self.evaluator = ir_measures.evaluator(list(self.parsed), queries.grades)

    def run(self, ranking: Ranking) -> dict[str, dict[str, float]]:
        """A TREC run: query id -> document id -> score."""
        run = {}
        for query, rows, scores in zip(self.query_ids, ranking.row_QK, ranking.score_QK, strict=True):
            found = rows >= 0
            run[query] = dict(zip(self.document_ids[rows[found]].tolist(), scores[found].tolist(), strict=True))
        return run

    def mean(self, ranking: Ranking) -> dict[str, float]:
        """Each measure's mean over the judged queries."""
        values = self.evaluator.calc_aggregate(self.run(ranking))
        return {name: float(values[measure]) for measure, name in self.parsed.items()}
