"""Re-ranks the results of a search with a cross-encoder, within a budget of calls for each query.

The search finds and orders a pool of documents, and the cross-encoder reads some of them. A document's base score is
its score in the search. If BM25 alone or fused ranks order the pool, the base score is the inner product of vectors.
Type `rnr` reads the best documents of the pool. Types `axn` and `adacur` spend the calls in rounds, and estimate the
other scores (see scores.estimators and scores.call_budget).
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats, Values
from rayhier.dataset.documents import document_texts
from rayhier.dataset.ranking import Ranking
from rayhier.extras import needs
from rayhier.scores.call_budget import Asked, ScorerError, Spent, checked, run_sync, spending
from rayhier.scores.estimators import Fit, Fixed, LeastSquares, Matching, PlusBase, Ridge
from rayhier.search.segment.segment import DOC_ID, VECTOR
from rayhier.spec import JobSpec
from rayhier.spec.search import Rerank
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.storage.decision import Decision
from rayhier.storage.leaf_map import LeafMap

if TYPE_CHECKING:
    from rayhier.scores.factors import Factors

KINDS = ("cross_encoder", "scores", "factors", "calibration")
"""Kinds of artifacts that a re-ranker may read."""
PENALTY = 1.0
"""Weight μ of the penalty on residuals in `Ridge`, for unit vectors."""
GAP = 0.01
"""Distance by which `below` puts the best estimate under the lowest score of a document that was read."""

Read = Callable[[Sequence[str], Sequence[str]], Floats]
"""Function from queries and documents as texts, pair by pair, to scores [n]."""
Asking = Generator[tuple[list[str], list[str]], object, Ranking]
"""Generator that yields each round's queries and documents, pair by pair, is sent scores [n], and returns a ranking."""


class RerankWeight(Decision):
    """The weight of the search's score in a sum with the cross-encoder's score, as dev queries chose it."""

    file = "rerank.json"
    beside: float
    """Weight with which the search's score is added to the cross-encoder's score."""
    slope: float
    """Mean slope of the cross-encoder's score on the search's, over the documents read for a query. At least 0."""
    queries: int
    depth: int
    """Number of the search's best documents that the cross-encoder read for each query."""
    measure: str
    """Measure that compares weights, such as nDCG@10."""
    searched: float
    """Mean of the measure for the search alone."""
    measured: dict[str, float]
    """Weight of the search's score -> mean of the measure over the dev queries."""


def by_relevance(score_N: Floats) -> list[tuple[int, float]]:
    """Order texts by a cross-encoder's scores [n], best first. Returns places, and scores from 0 to 1 by the logistic.

    >>> by_relevance(np.array([0.0, 2.0]))
    [(1, 0.8807970779778823), (0, 0.5)]
    """
    relevance_N = 1 / (1 + np.exp(-np.asarray(score_N, np.float64)))
    best = np.argsort(-np.asarray(score_N), kind="stable").tolist()
    return list(zip(best, relevance_N[best].tolist(), strict=True))


@dataclass(frozen=True)
class Anchors:
    """Cross-encoder scores [documents, anchors] of documents for anchor queries: ADACUR's vectors of the documents."""

    ids: pa.Array
    score_NA: Floats

    @classmethod
    def open(cls, scores: Artifact) -> "Anchors":
        """Read published scores in which every query has a score for every document."""
        table = columns.read([scores.path(name) for name in scores.names("pairs/")], ["query", "item", "score"])
        queries, items = (table[name].combine_chunks().dictionary_encode() for name in ("query", "item"))
        score_NA = np.zeros((len(items.dictionary), len(queries.dictionary)), np.float32)
        score_NA[items.indices.to_numpy(), queries.indices.to_numpy()] = table["score"].to_numpy()
        return cls(items.dictionary, score_NA)

    def vectors(self, ids: pa.Array) -> Floats:
        """Return the vectors [n, anchors] of documents by their ids. Documents without scores get the mean vector."""
        rows = pc.fill_null(pc.index_in(ids, self.ids), -1).to_numpy(zero_copy_only=False)
        return np.asarray(np.where((rows >= 0)[:, None], self.score_NA[rows], self.score_NA.mean(axis=0)))


@dataclass(frozen=True)
class Reranker:
    """A cross-encoder, and a spec's rule for which documents it reads."""

    spec: Rerank
    read: Read | None
    """Function that scores pairs in this process. None if another process scores pairs."""
    base_weight: float = 0.0
    """Weight with which the base score is added to the cross-encoder's score."""
    factors: "Factors | None" = None
    anchors: Anchors | None = None
    slope: float | None = None
    """Slope of the cross-encoder's score on the base score. None means the slope of the factors."""

    def __call__(
        self,
        texts: Sequence[str],
        query_QM: Floats,
        ranking: Ranking,
        k: int,
        budget: int | None = None,
        *,
        by_score: bool = False,
    ) -> Ranking:
        """Re-rank a ranking of q queries, whose documents have columns `doc_id` and `vector`. Returns the best k.

        `texts` and `query_QM` [q, m] are the queries and their vectors. Documents that were read come first, by score.
        Other documents of the pool follow, by estimates below these scores. Documents outside the pool come last, in
        their order. `budget` overrides the spec's. With `by_score` the ranking's own scores are the base scores, else
        inner products of vectors. ScorerError if the cross-encoder fails.
        """
        asking = self.asking(texts, query_QM, ranking, k, budget, by_score=by_score)
        return run_sync(asking, lambda pairs: self.score(*pairs))

    def score(self, queries: Sequence[str], documents: Sequence[str]) -> object:
        """Compute scores [n] of pairs of a query and a document. ScorerError if the cross-encoder fails."""
        if self.read is None:
            raise ScorerError("this re-ranker was opened without its cross-encoder")
        try:
            return self.read(queries, documents)
        except ScorerError:
            raise
        except Exception as error:
            raise ScorerError(f"the scorer failed: {error}") from error

    def asking(
        self,
        texts: Sequence[str],
        query_QM: Floats,
        ranking: Ranking,
        k: int,
        budget: int | None = None,
        *,
        by_score: bool = False,
    ) -> Asking:
        """Re-rank a ranking as a generator, which yields each round's pairs and is sent their scores."""
        table = ranking.documents
        if not table.num_rows:
            return replace(ranking, calls_Q=np.zeros(len(texts), np.int64))
        bodies, vector_NM = document_texts(table), columns.matrix(table[VECTOR])
        ids = table[DOC_ID].combine_chunks()
        ranked, most = [rows[rows >= 0] for rows in ranking.row_QK], self.spec.pooled(ranking.row_QK.shape[1])
        pools = [row_F[:most] for row_F in ranked]
        bases = [
            (score_K[: len(row_P)] if by_score else vector_NM[row_P] @ query_M).astype(np.float64)
            for query_M, score_K, row_P in zip(query_QM, ranking.score_QK, pools, strict=True)
        ]
        queries = [
            self._asked(query_M, ids.take(pa.array(row_P)), vector_NM[row_P], base_P, score_K[: len(row_P)])
            for text, query_M, row_P, base_P, score_K in zip(
                texts, query_QM, pools, bases, ranking.score_QK, strict=True
            )
        ]

        calls = self.spec.budget if budget is None else budget
        rounds, sums = spending(queries, calls, min(self.spec.parts, calls)), None
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
        for query, (pool, row_F) in enumerate(zip(spent, ranked, strict=True)):
            best, rest = row_F[pool.row_P], slice(len(pool.row_P), len(row_F))
            row_F = np.append(best, row_F[rest])[:k]
            score_F = below(np.append(pool.score_P, ranking.score_QK[query, rest]), len(best))
            row_QK[query, : len(row_F)] = row_F
            score_QK[query, : len(row_F)] = below(score_F, pool.calls)[:k]
        calls_Q = np.array([pool.calls for pool in spent], dtype=np.int64)
        shown = table.drop_columns([DOC_ID, VECTOR])
        return Ranking(score_QK, row_QK, shown, ranking.visited_Q, ranking.scanned_Q, ranking.leaves_Q, calls_Q)

    def _asked(self, query_M: Floats, ids: pa.Array, vector_PM: Floats, base_P: Values, ranked_P: Floats) -> Asked:
        """Return scores [p] that choose which candidates are read first, and the estimator of the other scores."""
        first_P = ranked_P.astype(np.float64)
        return Asked(first_P, self._fit(query_M, ids, vector_PM, base_P, first_P))

    def _fit(self, query_M: Floats, ids: pa.Array, vector_PM: Floats, base_P: Values, first_P: Values) -> Fit:
        match self.spec.type:
            case "rnr":
                return Fixed(first_P)
            case "adacur":
                if self.anchors is None:
                    raise ValueError("adacur: got no anchors; allowed: a re-ranker opened with scores of all documents")
                return PlusBase(LeastSquares(self.anchors.vectors(ids)), self.base_weight * base_P)
        prior_P, matching = base_P, Matching(0.0, 1.0)
        if (factors := self.factors) is not None:
            rows = factors.rows(ids)
            vector_PM, query_M, matching = factors.vectors(rows, vector_PM), factors.query(query_M), factors.matching
            if factors.learned.biased:
                prior_P = factors.prior(rows, base_P, self.slope) + self.base_weight * base_P
        if self.spec.fit == "ridge":
            return Ridge(prior_P, vector_PM, PENALTY)
        fit = LeastSquares(vector_PM, query_M.astype(np.float64), self.spec.lam, matching)
        return PlusBase(fit, self.base_weight * base_P)


def below(score_P: Values, calls: int) -> Values:
    """Lower all scores [p] after the first `calls` by one amount, so that all lie below the first `calls`.

    >>> below(np.array([3.0, 1.0, 2.5, 0.5]), 2).tolist()
    [3.0, 1.0, 0.99, -1.01]
    """
    if not 0 < calls < len(score_P):
        return score_P
    over = float(score_P[calls]) - (float(score_P[calls - 1]) - GAP)
    return np.append(score_P[:calls], score_P[calls:] - max(0.0, over))


def open_reranker(
    spec: JobSpec, published: Mapping[str, Artifact], leaf_map: LeafMap, *, reads: bool = True
) -> Reranker | None:
    """Open the re-ranker of a spec from published artifacts by kind. None if the spec does not re-rank.

    With `reads` False the cross-encoder is not opened, as another process scores pairs. InputError if factors were made
    for another model than the leaf map's, or torch is missing.
    """
    rerank = spec.search.reranking
    if rerank is None or spec.cross_encoder is None:
        return None
    cross_encoder, factors, calibration = (published.get(kind) for kind in ("cross_encoder", "factors", "calibration"))
    if cross_encoder is None:
        raise AssertionError("a run that re-ranks publishes a cross-encoder")
    needs("search.rerank: re-ranking", "torch", "transformers")
    from rayhier.scores.factors import Factors
    from rayhier.scores.scorer import open_scorer

    chosen, given = None if calibration is None else RerankWeight.open(calibration), spec.cross_encoder.beside
    beside = given if given != "auto" else 0.0 if chosen is None else chosen.beside
    return Reranker(
        rerank,
        open_scorer(cross_encoder, spec.cross_encoder) if reads else None,
        beside,
        None if factors is None else Factors.open(factors, leaf_map.manifest.model),
        Anchors.open(published["scores"]) if rerank.type == "adacur" else None,
        None if chosen is None else chosen.slope,
    )
