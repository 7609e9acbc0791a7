"""Find the best rows of a segment for each query. This file defines the scan, in plain numpy.

Searches of some leaves, all leaves, a level of a tree and the change log call `scan` with different arguments.
`lists.py` has a second form of the scan, over faiss' inverted lists. The second form is faster for few queries, and
only this form reads codes. Both forms return the same rows, except for ties. Their scores differ by at most 1e-5.

Shapes: Q queries, M embedding size, L lists, B lists of a query, N rows, K results, P pairs of a query and a list.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib.stride_tricks import sliding_window_view

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import padded, take
from rayhier.spec.train.retreever import Comparison

SCORES = 1 << 23
"""Most scores that are in memory together, about."""


@dataclass(frozen=True)
class RankedRows:
    """Rows found for every query [q, t], highest score first, with their scores. -inf and -1 stand for none."""

    score_QT: Floats
    row_QT: Ints

    @property
    def arrays(self) -> tuple[Floats, Ints]:
        return self.score_QT, self.row_QT

    @classmethod
    def none(cls, q: int, columns: int = 0) -> Self:
        """Make `columns` empty columns for q queries: score -inf, row -1."""
        return cls(np.full((q, columns), -np.inf, dtype=np.float32), np.full((q, columns), -1))

    @classmethod
    def joined(cls, parts: "Sequence[RankedRows]", axis: int = 1) -> "RankedRows":
        """Join what several parts found for the same queries, highest score first. Axis 0: for other queries."""
        if len(parts) == 1:
            return parts[0]
        score_QT, row_QT = (
            np.concatenate([getattr(part, name) for part in parts], axis=axis) for name in ("score_QT", "row_QT")
        )
        return cls(score_QT, row_QT).ordered() if axis else cls(score_QT, row_QT)

    def ordered(self) -> "RankedRows":
        """Put the rows of each query in the order of their scores, highest first."""
        return self.take(np.argsort(-self.score_QT, axis=1, kind="stable"))

    def take(self, place_QK: Ints) -> "RankedRows":
        """Reorder or select each query's rows by their places [q, k]."""
        return RankedRows(take(self.score_QT, place_QK), take(self.row_QT, place_QK))

    def first(self, count: int) -> "RankedRows":
        return RankedRows(self.score_QT[:, :count], self.row_QT[:, :count])

    def without(self, gone_QT: Bools) -> "RankedRows":
        """Empty the rows where `gone_QT` [q, t] is True: score -inf, row -1."""
        return RankedRows(np.where(gone_QT, np.float32(-np.inf), self.score_QT), np.where(gone_QT, -1, self.row_QT))

    def replaced(self, query_A: Ints, rows: "RankedRows") -> "RankedRows":
        """Return the rows with those of some queries [a] replaced by others."""
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
        """Take vectors [n, m] in memory or in a mapped file, list after list; without sizes, in a single list."""
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
    """Find the k best rows [q, k] of each query [q, m] in its lists [q, β], each list once. None: in all lists.

    List -1 means no list. Only rows where `keep_N` [n] is True count. `cosine` compares by inner products, `tv` by
    the negative total variation of two distributions.
    """
    q = len(query_QM)
    if list_QB is None:
        list_QB = np.tile(np.arange(len(rows.size_L)), (q, 1))
    size_QB = np.where(list_QB < 0, 0, np.append(rows.size_L, 0)[list_QB])
    widest = int(size_QB.sum(axis=1).max(initial=0))
    if not widest:
        return RankedRows.none(q, k)
    step = max(1, SCORES // max(widest, k, list_QB.shape[1]))
    cuts = [slice(begin, begin + step) for begin in range(0, q, step)]
    return RankedRows.joined(
        [_scan(rows, query_QM[some], list_QB[some], size_QB[some], k, keep_N, comparison) for some in cuts], axis=0
    )


def _scan(
    rows: ListedRows,
    query_QM: Floats,
    list_QB: Ints,
    size_QB: Ints,
    k: int,
    keep_N: Bools | None,
    comparison: Comparison,
) -> RankedRows:
    (q, beam), end_QB = list_QB.shape, np.cumsum(size_QB, axis=1)
    begin_QB, begin_L = end_QB - size_QB, np.cumsum(rows.size_L) - rows.size_L
    score_QN = np.full((q, max(k, int(end_QB[:, -1].max()))), -np.inf, np.float32)
    # A list's rows are compared at once with all queries that visit it.
    pair_P = np.flatnonzero(size_QB)
    pair_P = pair_P[np.argsort(list_QB.ravel()[pair_P], kind="stable")]
    list_P, query_P, column_P = list_QB.ravel()[pair_P], pair_P // beam, begin_QB.ravel()[pair_P]
    place_P, query_QM = query_P * score_QN.shape[1] + column_P, np.asarray(query_QM, np.float32)
    cuts = np.flatnonzero(np.diff(list_P, prepend=-1)).tolist()
    for begin, end in zip(cuts, [*cuts[1:], len(list_P)], strict=False):
        number = int(list_P[begin])
        row_NM = torch.from_numpy(rows.vectors(number)).float()
        score_PN = _compared(torch.from_numpy(query_QM[query_P[begin:end]]), row_NM, comparison)
        if keep_N is not None:
            score_PN[:, ~keep_N[begin_L[number] : begin_L[number] + len(row_NM)]] = -np.inf
        windows = sliding_window_view(score_QN.ravel(), len(row_NM), writeable=True)
        windows[place_P[begin:end]] = score_PN
    score_QK, best_QK = (best.numpy() for best in torch.topk(torch.from_numpy(score_QN), k))
    # A place is in the first list that ends after it; the queries' places lie one after another.
    begin_Q1 = np.arange(q)[:, None] * score_QN.shape[1]
    visits = np.searchsorted((end_QB + begin_Q1).ravel(), (best_QK + begin_Q1).ravel(), side="right")
    visit_QK = np.minimum(visits.reshape(q, k) - np.arange(q)[:, None] * beam, beam - 1)
    row_QK = begin_L[take(list_QB, visit_QK)] + best_QK - take(begin_QB, visit_QK)
    return RankedRows(score_QK, np.where(np.isneginf(score_QK), -1, row_QK))


def _compared(query_QM: torch.Tensor, row_NM: torch.Tensor, comparison: Comparison) -> Floats:
    if comparison == "cosine":
        return np.asarray((query_QM @ row_NM.T).numpy())
    return np.asarray((-0.5 * torch.cdist(query_QM, row_NM, p=1)).numpy())
