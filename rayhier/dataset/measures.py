"""Measures of rankings against judgements, as trec_eval defines them. Shapes: Q queries, K results."""

from collections.abc import Callable, Sequence

import numpy as np

from rayhier.arrays import Ints, Values
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import Ranking


class Judge:
    def __init__(self, queries: Queries, measures: Sequence[str]) -> None:
        """Take measures such as `nDCG@10`: nDCG, RR, AP, P, R or Success, each with a cut-off."""
        self.query_ids = list(queries.ids)
        self.measures = tuple(measures)
        self._grades = [queries.grades[query] for query in self.query_ids]
        self._code = {name: code for code, name in enumerate({name: 0 for grades in self._grades for name in grades})}
        grades = [sorted((max(0, grade) for grade in grades.values()), reverse=True) for grades in self._grades]
        self._ideal_QK = np.zeros((len(grades), max([1, *map(len, grades)])))
        for query, descending in enumerate(grades):
            self._ideal_QK[query, : len(descending)] = descending
        keys = {
            query * len(self._code) + self._code[name]: max(0, grade)
            for query, grades in enumerate(self._grades)
            for name, grade in grades.items()
        }
        self._key_J = np.array(sorted(keys), dtype=np.int64)
        self._grade_J = np.array([keys[key] for key in self._key_J.tolist()], dtype=np.int64)

    def run(self, ranking: Ranking, ids: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
        """Convert a ranking to a TREC run, query -> document -> score. The run has all queries, or the given `ids`."""
        run = {}
        named = self.query_ids if ids is None else ids
        for query, rows, scores in zip(named, ranking.row_QK, ranking.score_QK, strict=True):
            present = rows >= 0
            run[query] = dict(zip(ranking.ids[rows[present]].tolist(), scores[present].tolist(), strict=True))
        return run

    def values(self, ranking: Ranking) -> dict[str, Values]:
        """Compute each measure for every query, name -> [q]. Unlike in trec_eval, equal scores keep their order."""
        code_N = np.array([self._code.get(name, -1) for name in ranking.ids.tolist()] or [-1], dtype=np.int64)
        code_QK = np.where(ranking.row_QK >= 0, code_N[ranking.row_QK], -1)
        order_QK = np.argsort(-ranking.score_QK, axis=1, kind="stable")
        return self._measured(np.take_along_axis(code_QK, order_QK, axis=1))

    def values_of(self, run: dict[str, dict[str, float]]) -> dict[str, Values]:
        """Compute each measure for every query of a TREC run, name -> [q]. A query without results has 0."""
        ranked = [run.get(query, {}) for query in self.query_ids]
        code_QK = np.full((len(ranked), max([1, *map(len, ranked)])), -1, dtype=np.int64)
        for query, scores in enumerate(ranked):
            names = sorted(scores, key=scores.__getitem__, reverse=True)
            code_QK[query, : len(names)] = [self._code.get(name, -1) for name in names]
        return self._measured(code_QK)

    def mean(self, ranking: Ranking) -> dict[str, float]:
        return means(self.values(ranking))

    def mean_of(self, run: dict[str, dict[str, float]]) -> dict[str, float]:
        return means(self.values_of(run))

    def _measured(self, code_QK: Ints) -> dict[str, Values]:
        if not code_QK.shape[1]:
            code_QK = np.full((len(code_QK), 1), -1)
        gain_QK = np.zeros(code_QK.shape)
        if len(self._key_J):
            key_QK = np.arange(len(code_QK))[:, None] * len(self._code) + code_QK
            place_QK = np.searchsorted(self._key_J, key_QK).clip(max=len(self._key_J) - 1)
            judged_QK = (code_QK >= 0) & (self._key_J[place_QK] == key_QK)
            gain_QK[judged_QK] = self._grade_J[place_QK[judged_QK]]
        values = {}
        for name in self.measures:
            kind, _, cut = name.partition("@")
            values[name] = MEASURES[kind](gain_QK[:, : int(cut)], self._ideal_QK, int(cut))
        return values


def _discounted(gain_QK: Values, cut: int) -> Values:
    gain_QK = gain_QK[:, :cut]
    return np.asarray(gain_QK @ (1 / np.log2(np.arange(2, gain_QK.shape[1] + 2))))


def _ndcg(gain_QK: Values, ideal_QK: Values, cut: int) -> Values:
    return _share(_discounted(gain_QK, cut), _discounted(ideal_QK, cut))


def _reciprocal_rank(gain_QK: Values) -> Values:
    found_QK = gain_QK > 0
    return np.where(found_QK.any(axis=1), 1 / (1 + found_QK.argmax(axis=1)), 0.0)


def _average_precision(gain_QK: Values, ideal_QK: Values) -> Values:
    found_QK = gain_QK > 0
    precision_QK = found_QK.cumsum(axis=1) / np.arange(1, found_QK.shape[1] + 1)
    return _share((precision_QK * found_QK).sum(axis=1), (ideal_QK > 0).sum(axis=1))


def _share(part_Q: Values, whole_Q: Values) -> Values:
    return np.divide(part_Q, whole_Q, out=np.zeros(len(part_Q)), where=whole_Q > 0)


MEASURES: dict[str, Callable[[Values, Values, int], Values]] = {
    "nDCG": _ndcg,
    "RR": lambda gain_QK, *_: _reciprocal_rank(gain_QK),
    "AP": lambda gain_QK, ideal_QK, _: _average_precision(gain_QK, ideal_QK),
    "P": lambda gain_QK, _, cut: np.asarray((gain_QK > 0).sum(axis=1) / cut),
    "R": lambda gain_QK, ideal_QK, _: _share((gain_QK > 0).sum(axis=1), (ideal_QK > 0).sum(axis=1)),
    "Success": lambda gain_QK, *_: np.asarray((gain_QK > 0).any(axis=1), dtype=np.float64),
}
"""Function of each measure. The arguments are gains [q, k] up to the cut-off, grades descending, and the cut-off."""


def means(values: dict[str, Values]) -> dict[str, float]:
    return {name: float(value_Q.mean()) for name, value_Q in values.items()}
