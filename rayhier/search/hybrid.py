"""BM25 over the documents of an index, and the fusion of its results with those by vectors.

BM25's word counts are those of the whole index in one process, and of each shard group where the index is served.
Shapes: Q queries, M embedding size, K results, F rows of all parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rayhier.arrays import Bools, Floats, Values
from rayhier.dataset.documents import document_texts, result_numbers
from rayhier.dataset.ranking import ID, Needs, Ranking, by_name, compact, joined
from rayhier.search.bm25 import Words
from rayhier.search.exact import best_results
from rayhier.search.rows import RankedRows
from rayhier.search.scan import LeafScan
from rayhier.search.segment import DOC_ID, VECTOR
from rayhier.spec.filter import Filter
from rayhier.spec.search import HybridSpec
from rayhier.storage import columns

RANKS = 60
"""Constant c in the scores 1 / (c + rank) of reciprocal rank fusion (Cormack et al., SIGIR 2009)."""


@dataclass(frozen=True)
class Lexical:
    """The best documents by BM25, with their scores by vectors too."""

    ranking: Ranking
    """Documents ranked by BM25's scores."""
    base_QK: Floats
    """Scores [q, k] of the ranking's documents by their vectors; -inf where it has no document."""


class WordScan:
    """BM25 over the documents whose first leaf an opened `LeafScan` holds, each once."""

    def __init__(self, leaves: LeafScan) -> None:
        """Count the words of all documents whose first leaf `leaves` holds."""
        self._leaves = leaves
        parts = list(leaves.documents())
        self._row_N = np.concatenate([np.zeros(0, np.int64), *(row_N for row_N, _ in parts)])
        texts = [text for _, table in parts for text in document_texts(table)]
        self._words, self._result_N = Words(texts), None
        if parts and DOC_ID in parts[0][1].column_names:
            ids = [pa.concat_tables([table for _, table in parts])[name] for name in (DOC_ID, ID)]
            self._result_N = result_numbers(*(column.combine_chunks() for column in ids))

    def scan(
        self, texts: Sequence[str], query_QM: Floats, k: int, where: Filter | None = None, *, needs: Needs = "texts"
    ) -> Lexical:
        """Rank the best k documents of each query by BM25, among those that share a word with it and meet the filter.

        `query_QM` are the queries' vectors [q, m], by which the same documents are scored too. The
        ranking's documents have the columns that `needs` names.
        """
        mask_N = None if where is None else self._mask(where)
        score_QK, place_QK = best_results(
            lambda fetch: self._words.best(texts, fetch, mask_N), self._result_N, self._words.count, k
        )
        rows = RankedRows(score_QK, np.append(self._row_N, -1)[place_QK])
        score_QK, row_QK, table, _ = self._leaves.rows.results(rows, k, needs="vectors")
        vector_NM = columns.matrix(table[VECTOR]) if table.num_rows else np.zeros((0, query_QM.shape[1]), np.float32)
        base_QK = np.full(row_QK.shape, -np.inf, np.float32)
        for query, row_K in enumerate(row_QK):
            present_K = row_K >= 0
            base_QK[query, present_K] = vector_NM[row_K[present_K]] @ query_QM[query]
        if needs != "vectors" and table.num_rows:
            table = table.select([ID]) if needs == "ids" else table.drop_columns([DOC_ID, VECTOR])
        none_Q = np.zeros(len(texts), np.int64)
        return Lexical(Ranking(score_QK, row_QK, table, none_Q, none_Q, none_Q), base_QK)

    def _mask(self, where: Filter) -> Bools:
        """Return a mask [n] of the documents: True where a document meets the filter."""
        return np.asarray(self._leaves.mask(where)[self._row_N])


def fused(dense: Ranking, parts: Sequence[Lexical], k: int, fusion: HybridSpec, listed: int | None = None) -> Ranking:
    """Fuse the ranking by vectors with BM25's results from the parts of an index: the best k results, ties by id.

    `sum`: score by vectors + weight · BM25 / the query's best BM25; BM25 is 0 for a document that is no result of it.
    `rank`: 1 / (60 + rank by vectors) + 1 / (60 + rank by BM25), over the documents of both. Of BM25's results in all
    parts together, only the best `listed` count; None: all. Visited documents are counted by the search by vectors
    alone.
    """
    rankings = [dense, *(part.ranking for part in parts)]
    documents, row_QF = joined([(ranking.documents, ranking.row_QK) for ranking in rankings])
    base_QF = np.concatenate([dense.score_QK, *(part.base_QK for part in parts)], axis=1).astype(np.float64)
    words_QF = np.concatenate([np.zeros(dense.score_QK.shape), *(part.ranking.score_QK for part in parts)], axis=1)
    if listed is not None:
        row_QF = np.where(_beyond(words_QF, listed), -1, row_QF)
    number_N = by_name(documents[ID])
    q = len(row_QF)
    score_QK, best_QK = np.full((q, k), -np.inf, np.float32), np.full((q, k), -1)
    for query, row_F in enumerate(row_QF):
        place_F = np.flatnonzero(row_F >= 0)
        # Of a result's rows, the nearest by its vector comes first, and is shown.
        place_F = place_F[np.argsort(-base_QF[query, place_F], kind="stable")]
        _, first_U, result_F = np.unique(number_N[row_F[place_F]], return_index=True, return_inverse=True)
        base_U, words_U = base_QF[query, place_F[first_U]], np.zeros(len(first_U))
        np.maximum.at(words_U, result_F, words_QF[query, place_F])
        score_U = _score(base_U, words_U, fusion)
        best = np.argsort(-score_U, kind="stable")[:k]
        score_QK[query, : len(best)], best_QK[query, : len(best)] = score_U[best], row_F[place_F[first_U[best]]]
    score_QK, best_QK, documents = compact(score_QK, best_QK, documents)
    return replace(dense, score_QK=score_QK, row_QK=best_QK, documents=documents)


def _beyond(words_QF: Values, listed: int) -> Bools:
    """Mark the documents [q, f] after each query's best `listed` by BM25, but no ties with the last of these."""
    if words_QF.shape[1] <= listed:
        return np.zeros(words_QF.shape, dtype=bool)
    least_Q = -np.partition(-words_QF, listed - 1, axis=1)[:, listed - 1]
    return np.asarray((words_QF > 0) & (words_QF < least_Q[:, None]))


def _score(base_U: Values, words_U: Values, fusion: HybridSpec) -> Values:
    if fusion.fuse == "sum":
        return base_U + fusion.weight * words_U / max(float(words_U.max(initial=0)), 1e-9)
    shares_word_U = words_U > 0
    return 1 / (RANKS + _ranks(base_U)) + np.where(shares_word_U, 1 / (RANKS + _ranks(words_U)), 0)


def _ranks(value_U: Values) -> Values:
    """Return the rank [u] of each value, 1 for the highest; equal values in their order."""
    rank_U = np.empty(len(value_U))
    rank_U[np.argsort(-value_U, kind="stable")] = np.arange(1, len(value_U) + 1)
    return rank_U
