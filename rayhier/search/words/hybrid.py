"""BM25 over an index, and its fusion with vectors. Shapes: Q queries, K results, F rows of all parts."""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self

import numpy as np

from rayhier.arrays import Floats, Ints, Values
from rayhier.dataset.ranking import Needs, Ranking, by_name, compact, joined, repeated
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.search.segment.rows import in_leaves, lacks
from rayhier.search.segment.scan import RankedRows
from rayhier.search.segment.tail import TailView
from rayhier.search.words.postings import PostingLists, Postings
from rayhier.spec.filter import Filter
from rayhier.spec.search import HybridSpec
from rayhier.storage.leaf_map import LeafMap

RANKS = 60
"""Constant c in the scores 1 / (c + rank) of reciprocal rank fusion (Cormack et al., SIGIR 2009)."""


class WordScan:
    """BM25 over the documents whose first leaf a `LeafScan` holds, each once. Files are opened at the first search."""

    def __init__(self, leaves: LeafScan, open_: Callable[[], PostingLists]) -> None:
        self._leaves, self._open, self._lock = leaves, open_, threading.Lock()

    @classmethod
    def mapped(cls, leaf_map: LeafMap, leaves: LeafScan, cache_bytes: float = math.inf) -> Self:
        """Open a version's postings in a scan's leaves. Unmapped cached files beyond `cache_bytes` are removed."""
        return cls(leaves, lambda: _opened(leaf_map, leaves, cache_bytes))

    @property
    def words(self) -> PostingLists:
        """The postings, opened at first use. InputError if the index has none, or a file is not as published."""
        with self._lock:
            return self._words

    @cached_property
    def _words(self) -> PostingLists:
        return self._open()

    def open(self) -> None:
        """Open all postings now. InputError if a file is not as it was published."""
        _ = self.words

    def intact(self) -> bool:
        """Return True if the files of all open postings are unchanged since they were opened."""
        return "_words" not in self.__dict__ or self._words.intact()

    def scan(
        self,
        texts: Sequence[str],
        query_QM: Floats | None,
        k: int,
        where: Filter | None = None,
        *,
        needs: Needs = "texts",
        further: TailView | None = None,
    ) -> Ranking:
        """Rank the best k documents of each query by BM25, among documents with a word of the query that meet `where`.

        If `query_QM` [q, m] has the queries' vectors, they score the same documents too. `needs` names the columns of
        the ranking's documents. The documents of `further` also count for the rarity of words.
        """
        words, rows, mask_N = self.words, self._leaves.rows, None if where is None else self._leaves.mask(where)
        all_ = int(rows.begin_S[-1])
        fetch = 2 * k if self._leaves.holds_passages else k
        while True:
            ranked = RankedRows(*words.best(texts, min(fetch, all_), mask_N, further))
            best = rows.best(ranked, k)
            some_Q = (ranked.row_QT >= 0).sum(axis=1) >= fetch
            # Many of the best passages may belong to few documents.
            if fetch >= all_ or not (lacks(best.row_QT, k) & some_Q).any():
                break
            fetch *= 2
        documents, row_QK = rows.documents(best.row_QT, needs=needs)
        none_Q = np.zeros(len(texts), np.int64)
        ranking = Ranking(best.score_QT, row_QK, documents, none_Q, none_Q, none_Q)
        if query_QM is None:
            return ranking
        return replace(ranking, base_QK=self._leaves.products(query_QM, best.row_QT), leaf_QKR=rows.leaves(best.row_QT))

    def scan_tail(
        self,
        tail: TailView,
        texts: Sequence[str],
        query_QM: Floats | None,
        leaves: range,
        k: int,
        where: Filter | None = None,
        *,
        needs: Needs = "texts",
    ) -> Ranking:
        """Rank the best k documents of each query by BM25 among the tail's documents in a range of leaves."""
        row_A = tail.chosen(leaves, where)
        score_QA = np.zeros((len(texts), len(row_A)), np.float32)
        nothing = replace(
            Ranking.none(len(texts)), base_QK=None if query_QM is None else np.zeros((len(texts), 0), np.float32)
        )
        if not len(row_A):
            return nothing
        rows, weighted = tail.tail, [self.words.weighted(text, tail) for text in texts]
        place_N = np.full(int(row_A[-1]) + 1, -1)
        place_N[row_A] = np.arange(len(row_A))
        pairs = int(np.searchsorted(rows.word_row.values, row_A[-1], side="right"))
        hash_P, row_P, count_P = (array.values[:pairs] for array in (rows.word_hash, rows.word_row, rows.word_count))
        for query, (hash_T, weight_T) in enumerate(weighted):
            for hash_, weight in zip(hash_T.tolist(), weight_T.tolist(), strict=True):
                with_word = np.flatnonzero(hash_P == np.uint64(hash_))
                at_X = place_N[row_P[with_word]]
                with_word, at_X = with_word[at_X >= 0], at_X[at_X >= 0]
                share_X = self.words.share(count_P[with_word], rows.length.values[row_A[at_X]])
                score_QA[query, at_X] += np.float32(weight) * share_X
        compared, with_A = len(row_A), np.flatnonzero((score_QA > 0).any(axis=0))
        row_A, score_QA = row_A[with_A], score_QA[:, with_A]  # most have none of the words
        if not len(row_A):
            return nothing
        score_QA = np.where(score_QA > 0, score_QA, -np.inf).astype(np.float32)
        best_QK = tail.best(score_QA, row_A, k)
        ranking = tail.ranked(score_QA, row_A, best_QK, needs, compared)
        zero_Q = np.zeros(len(texts), np.int64)  # words visit no documents
        ranking = replace(ranking, visited_Q=zero_Q, scanned_Q=zero_Q)
        if query_QM is None:
            return ranking
        vector_QKM = tail.vectors(row_A[best_QK])
        base_QK = np.vecdot(vector_QKM, query_QM.astype(np.float32, copy=False)[:, None])
        base_QK = np.where(best_QK < 0, -np.inf, base_QK).astype(np.float32)
        return replace(ranking, base_QK=base_QK)


def _opened(leaf_map: LeafMap, leaves: LeafScan, cache_bytes: float) -> PostingLists:
    searched, others, spans = list[Postings](), list[Postings](), list[tuple[int, int]]()
    for shard in leaf_map.manifest.shards:
        is_searched = leaves.reads(shard)
        postings = Postings.open(leaf_map, shard, cache_bytes, rarity_alone=not is_searched)
        (searched if is_searched else others).append(postings)
    for segment in leaves.segments:
        leaf_L, size_L = segment.lists
        before, within = leaf_L < leaves.leaves.start, leaf_L < leaves.leaves.stop
        spans.append((int(size_L[before].sum()), int(size_L[within].sum())))
    return PostingLists(searched, spans, others, language=leaf_map.manifest.language)


def fused(
    dense: Ranking,
    parts: Sequence[Ranking],
    k: int,
    fusion: HybridSpec,
    listed: int | None = None,
    *,
    cosines: bool = True,
) -> Ranking:
    """Fuse the ranking by vectors with BM25's results from the parts of an index: the best k results, ties by id.

    `sum`: score by vectors + weight · BM25 / the query's best BM25. Documents that BM25 did not find have BM25 0. If
    vector scores are not `cosines`, the weight is multiplied by the best minus the lowest vector score. `rank`: 1 / (60
    + rank by vectors) + 1 / (60 + rank by BM25), over the documents of both. Only the best `listed` of BM25's results
    in all parts together count (None: all). Documents count as visited only in the search by vectors.
    """
    documents, row_QF = joined([(ranking.source, ranking.row_QK) for ranking in (dense, *parts)])
    base_QF = np.concatenate([dense.score_QK, *(part.base_QK for part in parts)], axis=1).astype(np.float64)
    words_QF = np.concatenate([np.zeros(dense.score_QK.shape), *(part.score_QK for part in parts)], axis=1)
    number_N = by_name(documents)
    if not len(number_N):
        return dense  # all documents were deleted
    q, near = len(row_QF), dense.row_QK.shape[1]
    score_QK, best_QK = np.full((q, k), -np.inf, np.float32), np.full((q, k), -1)
    number_QF = np.append(number_N, -1)[row_QF]
    for query, (row_F, number_F) in enumerate(zip(row_QF, number_QF, strict=True)):
        far_W = near + np.flatnonzero(row_F[near:] >= 0)
        if len(parts) > 1:  # a single part has them in this order
            far_W = _best_by_words(far_W, number_F, words_QF[query], base_QF[query])
        far_W = far_W[:listed]
        # A result's row from the search by vectors comes last, so that its score counts, and it is shown.
        place_F = np.concatenate([far_W[::-1], np.flatnonzero(row_F[:near] >= 0)[::-1]])
        place_N, words_N = np.full(len(number_N), -1), np.zeros(len(number_N))
        place_N[number_F[place_F]] = place_F
        words_N[number_F[far_W[::-1]]] = words_QF[query, far_W[::-1]]
        place_U, words_U = place_N[place_N >= 0], words_N[place_N >= 0]
        score_U = _score(base_QF[query, place_U], words_U, fusion, cosines=cosines)
        best = np.argsort(-score_U, kind="stable")[:k]
        score_QK[query, : len(best)], best_QK[query, : len(best)] = score_U[best], row_F[place_U[best]]
    score_QK, best_QK, documents = compact(score_QK, best_QK, documents)
    return replace(dense, score_QK=score_QK, row_QK=best_QK, source=documents)


def compared(parts: Sequence[Ranking], leaves_QB: Ints) -> Ints:
    """Count the documents [q] that BM25 found, with compared vectors, in leaves that the query did not visit."""
    far_Q = np.zeros(len(leaves_QB), np.int64)
    for part in parts:
        if part.leaf_QKR is not None:
            far_Q += ((part.leaf_QKR[..., 0] >= 0) & ~in_leaves(part.leaf_QKR, leaves_QB)).sum(axis=1)
    return far_Q


def _best_by_words(place_W: Ints, number_F: Ints, words_F: Values, base_F: Values) -> Ints:
    """Choose the best row of each result by BM25. Returns the rows' places [w], best first, ties by id."""
    place_W = place_W[np.lexsort((-base_F[place_W], number_F[place_W], -words_F[place_W]))]
    return np.asarray(place_W[~repeated(number_F[place_W][None])[0]])


def _score(base_U: Values, words_U: Values, fusion: HybridSpec, *, cosines: bool) -> Values:
    if fusion.fuse == "sum":
        scale = 1.0 if cosines or not len(base_U) else float(np.ptp(base_U)) or 1.0
        return base_U + fusion.chosen * scale * words_U / max(float(words_U.max(initial=0)), 1e-9)
    shares_word_U = words_U > 0
    return 1 / (RANKS + _ranks(base_U)) + np.where(shares_word_U, 1 / (RANKS + _ranks(words_U)), 0)


def _ranks(value_U: Values) -> Values:
    """Return the rank [u] of each value, 1 for the highest. Equal values rank in their order."""
    rank_U = np.empty(len(value_U))
    rank_U[np.argsort(-value_U, kind="stable")] = np.arange(1, len(value_U) + 1)
    return rank_U
