"""Re-rank what a search found with a cross-encoder, within a budget of calls a query.

The search's pool of documents is what may be read, in its order; the base is the inner product of the query's and the
documents' vectors. `rnr` reads the best, `axn` and `adacur` spend the calls in rounds (see scores.estimators and
scores.call_budget).
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats, Values
from rayhier.dataset.documents import document_texts
from rayhier.dataset.holdout import hash_ids
from rayhier.dataset.ranking import Ranking
from rayhier.scores.call_budget import Asked, ScorerError, Spending, Spent, checked, run_sync, within
from rayhier.scores.estimators import Fit, Fixed, LeastSquares, Matching, PlusBase, Ridge
from rayhier.scores.factors import Factors
from rayhier.search.bm25 import IndexedWords
from rayhier.search.segment import DOC_ID, VECTOR
from rayhier.spec.search import AdacurRerank, AxnRerank, Rnr
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact

GAP = 0.01
"""Distance of the best estimate from the last score, where estimates are moved below these."""
LEXICAL = 0.3
"""Weight of BM25, relative to the query's best, beside the base score where both are what is expected of documents."""

Read = Callable[[Sequence[str], Sequence[str]], Floats]
"""Queries and documents as texts, pair by pair -> scores [n]."""
Asking = Generator[tuple[list[str], list[str]], object, Ranking]
"""Yields queries and documents of each round, pair by pair, is sent their scores [n], and returns a ranking."""


@dataclass(frozen=True)
class Anchors:
    """Scores of anchor queries for all documents, [n, a], which are ADACUR's vectors of these."""

    ids: pa.Array
    score_NA: Floats

    @classmethod
    def open(cls, scores: Artifact) -> "Anchors":
        """Open published scores in which every query has every document."""
        table = columns.read([scores.path(name) for name in scores.names("pairs/")], ["query", "item", "score"])
        queries, items = (table[name].combine_chunks().dictionary_encode() for name in ("query", "item"))
        score_NA = np.zeros((len(items.dictionary), len(queries.dictionary)), np.float32)
        score_NA[items.indices.to_numpy(), queries.indices.to_numpy()] = table["score"].to_numpy()
        return cls(items.dictionary, score_NA)

    def vectors(self, ids: pa.Array) -> Floats:
        """Vectors [n, a] of documents; the mean of all for those that were added later."""
        rows = pc.fill_null(pc.index_in(ids, self.ids), -1).to_numpy(zero_copy_only=False)
        return np.asarray(np.where((rows >= 0)[:, None], self.score_NA[rows], self.score_NA.mean(axis=0)))


@dataclass(frozen=True)
class Reranker:
    """A cross-encoder, and how a spec spends its calls."""

    spec: Rnr | AxnRerank | AdacurRerank
    read: Read | None
    """What scores pairs in this process; None where another process does."""
    base_weight: float = 0.0
    """Weight of the base score, which is added to the cross-encoder's."""
    factors: Factors | None = None
    anchors: Anchors | None = None
    words: IndexedWords | None = None
    seconds: float | None = None
    """Time that the cross-encoder may take for a round of all queries; None: any."""

    def __call__(
        self, texts: Sequence[str], query_QM: Floats, found: Ranking, k: int, budget: int | None = None
    ) -> Ranking:
        """Re-rank the pools of queries, rankings whose documents have their vectors; returns the best k.

        The results that were read come first, by score; scores of the others are estimates below these, and documents
        outside the pool follow as they were found. `budget` overrides the spec's. ScorerError where the cross-encoder
        fails, or takes longer than `seconds` for a round.
        """
        return run_sync(self.asking(texts, query_QM, found, k, budget), lambda pairs: self.score(*pairs))

    def score(self, queries: Sequence[str], documents: Sequence[str]) -> object:
        """Scores [n] of pairs; ScorerError where the cross-encoder fails or takes too long."""
        read = self.read
        if read is None:
            raise ScorerError("this re-ranker was opened without its cross-encoder")
        return within(self.seconds, lambda: read(queries, documents))

    def asking(
        self, texts: Sequence[str], query_QM: Floats, found: Ranking, k: int, budget: int | None = None
    ) -> Asking:
        """Re-rank the pools of queries with scores that the caller sends for each round's pairs."""
        table = found.documents
        if not table.num_rows:
            return replace(found, calls_Q=np.zeros(len(texts), np.int64))
        bodies, vector_NM = document_texts(table), columns.matrix(table[VECTOR])
        ids = table[DOC_ID].combine_chunks()
        every, most = [rows[rows >= 0] for rows in found.row_QK], self.spec.pooled(found.row_QK.shape[1])
        pools = [row_F[:most] for row_F in every]
        bases = [
            (vector_NM[row_P] @ query_M).astype(np.float64) for query_M, row_P in zip(query_QM, pools, strict=True)
        ]
        asked = [
            self._asked(text, query_M, ids.take(pa.array(row_P)), vector_NM[row_P], base_P, found_K[: len(row_P)])
            for text, query_M, row_P, base_P, found_K in zip(texts, query_QM, pools, bases, found.score_QK, strict=True)
        ]

        calls = self.spec.budget if budget is None else budget
        rounds, sums = Spending(calls, min(self.spec.rounds, calls)).asking(asked), None
        while True:
            try:
                query_N, row_N = rounds.send(sums)
            except StopIteration as end:
                spent: list[Spent] = end.value
                break
            document_N = [int(pools[query][row]) for query, row in zip(query_N, row_N, strict=True)]
            answer = yield [texts[query] for query in query_N], [bodies[row] for row in document_N]
            base_N = np.array([bases[query][row] for query, row in zip(query_N, row_N, strict=True)])
            sums = checked(answer, len(row_N)) + self.base_weight * base_N
        score_QK, row_QK = np.full((len(texts), k), -np.inf, np.float32), np.full((len(texts), k), -1)
        for query, (own, row_F) in enumerate(zip(spent, every, strict=True)):
            best, rest = row_F[own.row_P], slice(len(own.row_P), len(row_F))
            row_F = np.append(best, row_F[rest])[:k]
            score_F = below(np.append(own.score_P, found.score_QK[query, rest]), len(best))
            row_QK[query, : len(row_F)] = row_F
            score_QK[query, : len(row_F)] = below(score_F, own.calls)[:k]
        calls_Q = np.array([own.calls for own in spent], dtype=np.int64)
        shown = table.drop_columns([DOC_ID, VECTOR])
        return Ranking(score_QK, row_QK, shown, found.visited_Q, found.scanned_Q, found.leaves_Q, calls_Q)

    def _asked(
        self, text: str, query_M: Floats, ids: pa.Array, vector_PM: Floats, base_P: Values, found_P: Floats
    ) -> Asked:
        """One query's pool: what orders its first round, and how scores explain others."""
        first_P = found_P.astype(np.float64)
        if self.spec.first == "random":
            first_P = np.random.default_rng(hash_ids([text])).random(len(ids))
        elif self.words is not None and len(ids):
            score_P = self.words.scores(text, ids).astype(np.float64)
            first_P = score_P if self.spec.first == "bm25" else base_P + LEXICAL * score_P / max(score_P.max(), 1e-9)
        return Asked(first_P, self._fit(query_M, ids, vector_PM, base_P, first_P))

    def _fit(self, query_M: Floats, ids: pa.Array, vector_PM: Floats, base_P: Values, first_P: Values) -> Fit:
        match self.spec:
            case Rnr():
                return Fixed(first_P)
            case AdacurRerank():
                if self.anchors is None:
                    raise ValueError("adacur: got no anchors; allowed: a re-ranker opened with scores of all documents")
                return PlusBase(LeastSquares(self.anchors.vectors(ids)), self.base_weight * base_P)
        prior_P, matching = first_P if self.spec.first == "both" else base_P, Matching(0.0, 1.0)
        if (factors := self.factors) is not None:
            rows = factors.rows(ids)
            vector_PM, query_M, matching = factors.vectors(rows, vector_PM), factors.query(query_M), factors.matching
            if factors.learned.biased:
                prior_P = factors.prior(rows, prior_P) + self.base_weight * base_P
        if self.spec.fit == "ridge":
            return Ridge(prior_P, vector_PM, self.spec.mu)
        fit = LeastSquares(vector_PM, query_M.astype(np.float64), self.spec.lam, matching)
        return PlusBase(fit, self.base_weight * base_P)


def below(score_P: Values, calls: int) -> Values:
    """Scores [p] of which those after the first `calls` are moved, together, below these: the order is one by score.

    >>> below(np.array([3.0, 1.0, 2.5, 0.5]), 2).tolist()
    [3.0, 1.0, 0.99, -1.01]
    """
    if not 0 < calls < len(score_P):
        return score_P
    over = float(score_P[calls]) - (float(score_P[calls - 1]) - GAP)
    return np.append(score_P[:calls], score_P[calls:] - max(0.0, over))
