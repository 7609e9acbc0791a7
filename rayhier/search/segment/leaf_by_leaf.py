"""Scans lists leaf by leaf, for many queries: a list's rows times all of its queries is one matrix product.

Query by query, every query reads the rows of all its lists; leaf by leaf, rows are read and converted to float32 once
for all queries of a batch. Of the products, only scores above a query's k-th best so far are kept; when there are many,
they are merged with the best so far, which raises that bound.

Shapes: Q queries, M embedding size, L lists, B lists of a query, K results, P pairs of a query and a list, T tiles,
G pairs of a group of tiles, X scores that are kept.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from rayhier.arrays import Bools, Floats, Ints
from rayhier.search.segment import codecs

BATCH = 1 << 22
"""About the most pairs of a query and a list whose products are computed before the next queries are begun."""
TILE_PAIRS, TILE_ROWS, GROUP = 512, 1_024, 1_024
"""Most queries, and most rows, of one product, and about the most queries of a group of products: what they read and
write stays in the processor's cache."""
KEPT = 1 << 18
"""Fewest scores that are kept before they are merged with the best so far."""
FEWEST = 16
"""Fewest queries that are scanned leaf by leaf."""
PRODUCT, SCORE, PAIR, ROW, LIST, MERGED = 0.024, 2.0, 0.3, 0.5, 22_000.0, 60.0
"""Nanoseconds leaf by leaf: of each number of a score, of a score, of each number of a pair's query, of each number of
a row that is read, of a list, and of a score that is kept (docs/LOG.md)."""
ALONE, VISIT = {2: 0.08, 4: 0.16}, 450.0
"""Nanoseconds query by query: of each number of a score, by the bytes in which it is stored, and of a pair."""


@dataclass(frozen=True)
class StoredRows:
    """Rows of inverted lists without loss (flat, fp16), numbered list after list."""

    index: Any
    """faiss's index of the lists."""
    begin_L: Ints
    """Number of the first row of each list."""
    size_L: Ints
    """Number of rows of each list."""
    row_N: Ints | None = None
    """Number that a caller gives each row [n]. None: the same."""
    mask_N: Bools | None = None
    """True for rows that are scanned, by the caller's numbers [n]. None: all are."""

    def vectors(self, number: int, begin: int, end: int) -> torch.Tensor:
        """Return the stored vectors [n, m] of the rows from `begin` to `end` of a list."""
        return torch.from_numpy(codecs.stored(self.index, number, begin, end))

    def scanned(self, kept: "Kept") -> "Kept":
        """Give rows their callers' numbers, and leave out those that are not scanned."""
        row_X = kept.row_X if self.row_N is None else self.row_N[kept.row_X]
        if self.mask_N is None:
            return kept._replace(row_X=row_X)
        is_scanned_X = self.mask_N[row_X]
        return Kept(kept.query_X[is_scanned_X], row_X[is_scanned_X], kept.score_X[is_scanned_X])


def first_lists(rows: StoredRows, scored_L: Ints, list_QB: Ints, k: int) -> int:
    """Return how many of each query's lists [q, β] are to be scanned query by query, before the others leaf by leaf.

    All, where query by query takes less time. `scored_L` are the numbers of rows that it scores in each list: a filter
    skips the others. The more rows come first, the higher the score that others must exceed, and the fewer are kept.
    """
    q, beam = list_QB.shape[0], int(list_QB.shape[1])
    share = k * q / max(1.0, float(np.where(list_QB < 0, 0, scored_L[list_QB]).sum()))
    first = math.ceil(beam * max(share, math.sqrt(share) / 2))
    if q < FEWEST or first >= beam:
        return beam
    list_P = list_QB[:, first:][list_QB[:, first:] >= 0]
    is_visited_L = np.zeros(len(rows.size_L), bool)
    is_visited_L[list_P] = True
    m, width = rows.index.d, rows.index.code_size
    by_leaf = (
        (PRODUCT * m + SCORE) * float(rows.size_L[list_P].sum())
        + PAIR * m * len(list_P)
        + ROW * m * float(rows.size_L[is_visited_L].sum())
        + LIST * float(is_visited_L.sum())
        + MERGED * k * q * beam / first
    )
    by_query = ALONE[width // m] * m * float(scored_L[list_P].sum()) + VISIT * len(list_P)
    return first if by_leaf < by_query else beam


def scan(rows: StoredRows, query_QM: Floats, list_QB: Ints, score_QK: Floats, row_QK: Ints) -> None:
    """Merge the best rows of each query's lists [q, β] into the scores and rows [q, k] that were found before.

    Where these are fewer, they end in score -inf and row -1. List -1 means no list.
    """
    batch = max(1, BATCH // list_QB.shape[1])
    for begin in range(0, len(query_QM), batch):
        some = slice(begin, begin + batch)
        best, kept, count = Best(score_QK[some], row_QK[some]), list[Kept](), 0
        for better in _better(rows, query_QM[some], list_QB[some], best.least_Q):
            kept.append(better)
            count += len(better.row_X)
            if count > max(KEPT, best.row_QK.size):
                best.add(kept)
                kept, count = [], 0
        if kept:
            best.add(kept)


class Kept(NamedTuple):
    """Scores above the least of their queries' best so far."""

    query_X: Ints
    row_X: Ints
    score_X: Floats


class Best:
    """The best rows of each query so far, highest score first."""

    def __init__(self, score_QK: Floats, row_QK: Ints) -> None:
        """Take scores and rows [q, k], -inf and -1 where there are fewer; `add` writes into them."""
        self.score_QK, self.row_QK = score_QK, row_QK
        self.least_Q = score_QK[:, -1].copy()
        """Score of the last row of each query."""

    def add(self, kept: Sequence[Kept]) -> None:
        query_X, row_X, score_X = (np.concatenate(arrays) for arrays in zip(*kept, strict=True))
        is_raised_Q, k = np.zeros(len(self.least_Q), bool), self.row_QK.shape[1]
        is_raised_Q[query_X] = True
        query_A, number_Q = np.flatnonzero(is_raised_Q), np.cumsum(is_raised_Q) - 1
        number_X = np.concatenate([np.repeat(np.arange(len(query_A)), k), number_Q[query_X]])
        row_X = np.concatenate([self.row_QK[query_A].ravel(), row_X])
        score_X = np.concatenate([self.score_QK[query_A].ravel(), score_X])
        # One sort of integers: the query above the bits of its score, turned so that they ascend as scores fall.
        bits_X = score_X.view(np.int32)
        falling_X = np.int64(0x7FFFFFFF) - (bits_X ^ (bits_X >> 31 & 0x7FFFFFFF))
        order_X = np.argsort((number_X << 32) + falling_X)
        # Every query has at least the k rows, some of them -1, that it had before.
        first_A = np.searchsorted(number_X[order_X], np.arange(len(query_A)))
        best_AK = order_X[first_A[:, None] + np.arange(k)]
        self.score_QK[query_A], self.row_QK[query_A] = score_X[best_AK], row_X[best_AK]
        self.least_Q[query_A] = self.score_QK[query_A, -1]


def _better(rows: StoredRows, query_QM: Floats, list_QB: Ints, least_Q: Floats) -> Iterator[Kept]:
    order_P, groups = _groups(rows.size_L, list_QB)
    query_P = order_P // list_QB.shape[1]
    room = Room(rows.index.d)
    for tiles in groups:
        first, last = int(tiles.begin_T[0]), int(tiles.end_T[-1])
        width_T = tiles.end_T - tiles.begin_T
        size_T = width_T * (tiles.bottom_T - tiles.top_T)
        until_T = np.cumsum(size_T)
        query_GM, score, is_better = room.take(last - first, int(until_T[-1]))
        # By numpy: torch warns of arrays that it may not write, as those are that a process shares.
        np.take(query_QM, query_P[first:last], axis=0, out=query_GM.numpy(), mode="clip")
        least_G = torch.from_numpy(least_Q[query_P[first:last]])
        places = (*tiles[:3], tiles.begin_T - first, tiles.end_T - first, until_T)
        for number, top, bottom, begin, end, until in zip(*(place_T.tolist() for place_T in places), strict=True):
            shape = bottom - top, end - begin
            since = until - shape[0] * shape[1]
            score_NG = score[since:until].view(shape)
            row_NM = room.float32(rows.vectors(number, top, bottom))
            torch.mm(row_NM, query_GM[begin:end].T, out=score_NG)
            torch.gt(score_NG, least_G[begin:end], out=is_better[since:until].view(shape))
        place_X = np.flatnonzero(is_better.numpy())
        if len(place_X):
            tile_X = np.searchsorted(until_T, place_X, side="right")
            row_X, pair_X = np.divmod(place_X - (until_T - size_T)[tile_X], width_T[tile_X])
            row_X += (rows.begin_L[tiles.list_T] + tiles.top_T)[tile_X]
            yield rows.scanned(Kept(query_P[pair_X + tiles.begin_T[tile_X]], row_X, score.numpy()[place_X]))


class Room:
    """Memory of a group of tiles, which the next group uses again: new memory costs more than the products."""

    def __init__(self, m: int) -> None:
        self._row_NM = torch.empty(TILE_ROWS, m)
        self._query_GM, self._score, self._is_better = (
            torch.empty(0, m),
            torch.empty(0),
            torch.empty(0, dtype=torch.bool),
        )

    def float32(self, row_NM: torch.Tensor) -> torch.Tensor:
        """Convert rows [n, m], at most `TILE_ROWS`, to float32; they are valid until the next are converted."""
        return row_NM if row_NM.dtype == torch.float32 else self._row_NM[: len(row_NM)].copy_(row_NM)

    def take(self, pairs: int, scores: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return room for the queries [g, m] of some pairs, for some scores and for as many truth values."""
        if pairs > len(self._query_GM):
            self._query_GM = torch.empty(2 * pairs, self._query_GM.shape[1])
        if scores > len(self._score):
            self._score, self._is_better = torch.empty(2 * scores), torch.empty(2 * scores, dtype=torch.bool)
        return self._query_GM[:pairs], self._score[:scores], self._is_better[:scores]


class Tiles(NamedTuple):
    """Products: each of rows of a list, and of queries that visit it."""

    list_T: Ints
    top_T: Ints
    bottom_T: Ints
    """The rows of the list from `top_T` to `bottom_T`."""
    begin_T: Ints
    end_T: Ints
    """The pairs from `begin_T` to `end_T`, in the order of lists."""


def _groups(size_L: Ints, list_QB: Ints) -> tuple[Ints, Iterator[Tiles]]:
    """Sort the pairs of a query and a list with rows by their lists. Returns their order [p] and groups of tiles."""
    kind = np.uint16 if len(size_L) <= 1 << 16 else np.int64  # numpy sorts 16 bits ten times as fast
    pair_P = np.flatnonzero(np.where(list_QB < 0, 0, size_L[list_QB]))
    list_P = list_QB.ravel()[pair_P].astype(kind)
    order_P = np.argsort(list_P, kind="stable")
    list_P = list_P[order_P]
    begin_T = np.flatnonzero(np.append(True, list_P[1:] != list_P[:-1]))[: len(list_P)]
    list_T, end_T = list_P[begin_T].astype(np.int64), np.append(begin_T, len(list_P))[1:]
    range_T, begin_T, end_T = _cut(begin_T, end_T, TILE_PAIRS)
    list_T = list_T[range_T]
    range_T, top_T, bottom_T = _cut(np.zeros_like(list_T), size_L[list_T], TILE_ROWS)
    tiles = Tiles(list_T[range_T], top_T, bottom_T, begin_T[range_T], end_T[range_T])
    group_T = np.cumsum(tiles.end_T - tiles.begin_T) // GROUP
    cuts = [0, *(np.flatnonzero(np.diff(group_T)) + 1).tolist(), len(group_T)]
    groups = (Tiles(*(array_T[begin:end] for array_T in tiles)) for begin, end in pairwise(cuts) if begin < end)
    return pair_P[order_P], groups


def _cut(begin_T: Ints, end_T: Ints, most: int) -> tuple[Ints, Ints, Ints]:
    """Cut ranges into pieces of at most `most`. Returns for each the number of its range, its begin and its end.

    >>> [array_T.tolist() for array_T in _cut(np.array([0, 5]), np.array([5, 6]), 3)]
    [[0, 0, 1], [0, 3, 5], [3, 5, 6]]
    """
    pieces_T = -(-(end_T - begin_T) // most)
    range_T = np.repeat(np.arange(len(begin_T)), pieces_T)
    piece_T = np.arange(len(range_T)) - np.repeat(np.cumsum(pieces_T) - pieces_T, pieces_T)
    first_T = begin_T[range_T] + most * piece_T
    return range_T, first_T, np.minimum(first_T + most, end_T[range_T])
