"""Find the best of some rows for each query without codes, in numpy.

Searches of a level of a tree, of the change log and of EHI's lists in training call `scan`. Leaves of an index have
codes, which `search/native/` scans.

Shapes: Q queries, M embedding size, L lists, B lists of a query, N rows, K results, P pairs of a query and a list.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import padded, take
from rayhier.spec.train.retreever import Comparison

SCORES = 1 << 23
"""Approximate number of scores of queries and rows that a scan holds in memory together."""
TILE = 1_024
"""Rows that are compared at once, so that they stay in the processor's cache."""
KEPT = 64
"""Mean number of rows for each query that are collected before they are merged with the best rows so far."""
Kept = tuple[Ints, Ints, Floats]
"""Query [x], row [x] and score [x] of rows that may be among the best."""


@dataclass(frozen=True)
class RankedRows:
    """Rows found for every query [q, t], highest score first, with their scores. -inf and -1 mean none."""

    score_QT: Floats
    row_QT: Ints

    @property
    def arrays(self) -> tuple[Floats, Ints]:
        return self.score_QT, self.row_QT

    @classmethod
    def none(cls, q: int, columns: int = 0) -> Self:
        return cls(np.full((q, columns), -np.inf, dtype=np.float32), np.full((q, columns), -1))

    @classmethod
    def joined(cls, parts: "Sequence[RankedRows]", axis: int = 1) -> "RankedRows":
        """Join rows of several parts for the same queries (with axis 0: different queries), highest score first."""
        if len(parts) == 1:
            return parts[0]
        score_QT, row_QT = (
            np.concatenate([getattr(part, name) for part in parts], axis=axis) for name in ("score_QT", "row_QT")
        )
        return cls(score_QT, row_QT).ordered() if axis else cls(score_QT, row_QT)

    def ordered(self) -> "RankedRows":
        return self.take(np.argsort(-self.score_QT, axis=1, kind="stable"))

    def take(self, place_QK: Ints) -> "RankedRows":
        """Reorder or select each query's rows by their places [q, k]."""
        return RankedRows(take(self.score_QT, place_QK), take(self.row_QT, place_QK))

    def first(self, count: int) -> "RankedRows":
        return RankedRows(self.score_QT[:, :count], self.row_QT[:, :count])

    def without(self, gone_QT: Bools) -> "RankedRows":
        """Empty the rows that `gone_QT` [q, t] marks: score -inf, row -1."""
        return RankedRows(np.where(gone_QT, np.float32(-np.inf), self.score_QT), np.where(gone_QT, -1, self.row_QT))

    def replaced(self, query_A: Ints, rows: "RankedRows") -> "RankedRows":
        """Replace the rows of some queries [a]."""
        width = rows.row_QT.shape[1]
        score_QT, row_QT = padded(self.score_QT, width, -np.inf), padded(self.row_QT, width, -1)
        score_QT[query_A], row_QT[query_A] = -np.inf, -1
        score_QT[query_A, :width], row_QT[query_A, :width] = rows.score_QT, rows.row_QT
        return RankedRows(score_QT, row_QT)


@dataclass(frozen=True)
class ListedRows:
    """Rows in lists, one for each leaf, numbered list after list."""

    size_L: Ints
    """Number of rows of each list."""
    vectors: Callable[[int], npt.NDArray[Any]]
    """Function that reads the vectors [n, m] of a list's rows, of 16 or 32 bits."""

    @classmethod
    def of(cls, vector_NM: npt.NDArray[Any], size_L: Ints | None = None) -> Self:
        """Take vectors [n, m] in memory or in a mapped file, list after list. Without `size_L`, all are one list."""
        size_L = np.array([len(vector_NM)]) if size_L is None else size_L
        end_L = np.cumsum(size_L)
        return cls(size_L, lambda number: vector_NM[end_L[number] - size_L[number] : end_L[number]])


def scan(
    rows: ListedRows,
    query_QM: Floats,
    list_QB: Ints | None,
    k: int,
    keep_N: Bools | None = None,
    comparison: Comparison = "cosine",
) -> RankedRows:
    """Find the k best rows [q, k] of each query [q, m] in its distinct lists [q, β]. None means all lists.

    List -1 means no list. Only rows that `keep_N` [n] marks count. `cosine` compares by inner products, `tv` by the
    negative total variation of two distributions.
    """
    q = len(query_QM)
    if not q or not k:
        return RankedRows.none(q, k)
    if list_QB is None:
        list_QB = np.tile(np.arange(len(rows.size_L)), (q, 1))
    step = max(1, SCORES // max(TILE, k, list_QB.shape[1]))
    cuts = [slice(begin, begin + step) for begin in range(0, q, step)]
    query_QM = np.asarray(query_QM, np.float32)
    return RankedRows.joined(
        [_scan(rows, query_QM[some], list_QB[some], k, keep_N, comparison) for some in cuts], axis=0
    )


def _scan(
    rows: ListedRows, query_QM: Floats, list_QB: Ints, k: int, keep_N: Bools | None, comparison: Comparison
) -> RankedRows:
    begin_L = np.cumsum(rows.size_L) - rows.size_L
    best, kept, count = RankedRows.none(len(query_QM), k), list[Kept](), 0
    for number, query_P in _visits(rows.size_L, list_QB):
        visitor_PM, vector_NM = query_QM.take(query_P, axis=0), rows.vectors(number)
        for top in range(0, len(vector_NM), TILE):
            row_N = begin_L[number] + np.arange(top, min(top + TILE, len(vector_NM)))
            score_NP = _compared(np.asarray(vector_NM[top : top + TILE], np.float32), visitor_PM, comparison)
            if keep_N is not None:
                score_NP[~keep_N[row_N]] = -np.inf
            # A merge is slow. So rows better than the k-th best so far are kept until there are many.
            place_X = np.flatnonzero(score_NP > best.score_QT[query_P, -1])
            if len(place_X) > k * len(query_P):  # at first, only each query's k best of many rows matter
                row_KP = np.argpartition(score_NP, -k, axis=0)[-k:]
                place_X = (row_KP * len(query_P) + np.arange(len(query_P))).ravel()
            if not len(place_X):
                continue
            row_X, pair_X = np.divmod(place_X, len(query_P))
            kept.append((query_P[pair_X], row_N[row_X], score_NP.ravel()[place_X]))
            count += len(place_X)
            if count > max(KEPT, k) * len(query_QM):
                best, kept, count = _merged(best, kept), [], 0
    best = _merged(best, kept) if kept else best
    return best.without(np.isneginf(best.score_QT))


def _visits(size_L: Ints, list_QB: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each visited list that has rows, and all its queries [p], which are compared with its rows at once."""
    pair_P = np.flatnonzero(np.where(list_QB < 0, 0, size_L[list_QB]))
    small_P = list_QB.ravel()[pair_P].astype(np.min_scalar_type(len(size_L)))  # numpy sorts 16 bits ten times as fast
    pair_P = pair_P[np.argsort(small_P, kind="stable")]
    list_P, query_P = list_QB.ravel()[pair_P], pair_P // list_QB.shape[1]
    cuts = np.flatnonzero(np.diff(list_P, prepend=-1)).tolist()
    for begin, end in pairwise([*cuts, len(list_P)]):
        yield int(list_P[begin]), query_P[begin:end]


def _merged(best: RankedRows, kept: Sequence[Kept]) -> RankedRows:
    q, k = best.row_QT.shape
    query_X, row_X, score_X = (np.concatenate(arrays) for arrays in zip(*kept, strict=True))
    query_X = np.concatenate([np.repeat(np.arange(q), k), query_X])
    row_X, score_X = np.append(best.row_QT, row_X), np.append(best.score_QT, score_X)
    order_X = np.argsort(-score_X)
    order_X = order_X[np.argsort(query_X[order_X].astype(np.min_scalar_type(q)), kind="stable")]
    size_Q = np.bincount(query_X)  # each query has at least its k earlier rows, some of them -1
    order_QK = order_X[(np.cumsum(size_Q) - size_Q)[:, None] + np.arange(k)]
    return RankedRows(score_X[order_QK], row_X[order_QK])


def _compared(row_NM: Floats, query_PM: Floats, comparison: Comparison) -> Floats:
    if comparison == "cosine" and len(query_PM) == 1:
        return np.asarray(np.vecdot(row_NM, query_PM)[:, None])
    if comparison == "cosine":
        return np.asarray(row_NM @ query_PM.T)
    score_NP, apart_NM = np.empty((len(row_NM), len(query_PM)), np.float32), np.empty_like(row_NM)
    for query, query_M in enumerate(query_PM):
        np.abs(np.subtract(row_NM, query_M, out=apart_NM), out=apart_NM).sum(axis=1, out=score_NP[:, query])
    return np.multiply(score_NP, np.float32(-0.5), out=score_NP)
