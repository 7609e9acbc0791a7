"""Rows of an index under one numbering, file after file: their ids, what results show of them, and their vectors.

Shapes: N rows, M embedding size, Q queries, T rows considered, K results, S segments.
"""

import resource
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import ID, Needs, by_name, repeated, take
from rayhier.search.segment.scan import RankedRows
from rayhier.search.segment.segment import Segment, leaf_pairs
from rayhier.search.segment.threads import in_threads
from rayhier.spec.filter import Filter

TOGETHER, KEPT = 8, 400_000
"""Most queries whose rows are read and multiplied together, and numbers of their vectors: more would not stay in the
processor's cache."""
MULTIPLIED = 1 << 22
"""Numbers of vectors that are read together, about, where lists alone hold them."""
SERIAL = 32_000
"""Numbers that torch converts without a second thread: waking it takes longer."""
FEWEST_A_THREAD = 32
"""Fewest queries that each of several threads scores again."""


class Rows:
    """Rows of an index's segments, numbered segment after segment."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self.begin_S = np.cumsum([0, *(segment.count for segment in segments)])
        """Number of each segment's first row [s + 1]. The last entry is the number of rows."""
        self._first: list[int] = self.begin_S.tolist()
        self._from_disk = True
        self._memory = threading.local()

    def mask(self, where: Filter) -> Bools:
        """Return a mask [n] of the rows: True if a row meets a filter."""
        return np.concatenate([np.zeros(0, bool), *(segment.mask(where) for segment in self._segments)])

    def scored(self, query_QM: Floats, row_QT: Ints) -> RankedRows:
        """Score rows [q, t] by inner products of queries [q, m] and stored vectors. Returns the rows, best first.

        Where vectors of the last rows came from a disk, those of all these rows are asked of it at once.
        """
        row_QT = np.sort(row_QT, axis=1)
        score_QT = np.full(row_QT.shape, -np.inf, np.float32)
        if not row_QT.size or not self._segments:
            return RankedRows(score_QT, row_QT)
        if self._from_disk:
            asked_A = np.unique(row_QT)
            for segment, first, begin, end in self._spans(np.searchsorted(asked_A, self.begin_S).tolist()):
                segment.read_ahead(asked_A[begin:end] - first)
        score = partial(self._score, self._matrices)
        self._from_disk = any(in_threads(score, FEWEST_A_THREAD, query_QM, row_QT, score_QT))
        if (row_QT[:, 0] < 0).any():
            score_QT[row_QT < 0] = -np.inf
        return RankedRows(score_QT, row_QT).ordered()

    def _score(self, matrices: "Sequence[npt.NDArray[Any]]", query_QM: Floats, row_QT: Ints, score_QT: Floats) -> bool:
        """Write the products of queries and their rows [q, t], which ascend; True if some came from a disk."""
        before, (q, t) = _blocks_read(), row_QT.shape
        query_QM = np.ascontiguousarray(query_QM, dtype=np.float32)
        memory: _Memory | None = getattr(self._memory, "kept", None)
        if memory is None:
            memory = self._memory.kept = _Memory(matrices, self.begin_S)
        together = max(1, min(TOGETHER, memory.rows // t))
        for begin in range(0, q, together):
            some = slice(begin, begin + together)
            for first in range(0, t, memory.rows):
                places = slice(first, first + memory.rows)
                vector_GTM = memory.vectors(row_QT[some, places])
                # Product by product, so that a score is the same whatever else is asked.
                np.vecdot(vector_GTM, query_QM[some, None], out=score_QT[some, places])
        return _blocks_read() > before

    def products(self, query_QM: Floats, row_QT: Ints) -> Floats:
        """Compute the inner products [q, t] of queries [q, m] and stored vectors of rows [q, t]. Row -1 gets -inf.

        Unlike `scored`, of rows in any segment, also where lists alone hold the vectors.
        """
        step = max(1, MULTIPLIED // max(1, row_QT.shape[1] * query_QM.shape[1]))
        if len(row_QT) > step:
            parts = [slice(begin, begin + step) for begin in range(0, len(row_QT), step)]
            return np.concatenate([self.products(query_QM[some], row_QT[some]) for some in parts])
        row_X = row_QT.ravel()
        order_X = row_X.argsort()
        ascending_X, vector_XM = row_X[order_X], np.zeros((len(row_X), query_QM.shape[1]), np.float32)
        for segment, first, begin, end in self._spans(ascending_X.searchsorted(self.begin_S).tolist()):
            vector_XM[order_X[begin:end]] = segment.vectors(ascending_X[begin:end] - first).numpy()
        found_QTM = vector_XM.reshape(*row_QT.shape, query_QM.shape[1])
        return np.where(row_QT < 0, np.float32(-np.inf), np.vecdot(found_QTM, query_QM[:, None].astype(np.float32)))

    def leaves(self, row_QT: Ints) -> Ints:
        """Return the first and the last leaf [q, t, 2] of rows' documents, and -1 for row -1."""
        leaf_QT2 = np.full((*row_QT.shape, 2), -1)
        for segment, begin, end in zip(self._segments, self._first, self._first[1:], strict=False):
            in_segment_QT = (row_QT >= begin) & (row_QT < end)
            lists = segment.table["leaves"].take(pa.array(row_QT[in_segment_QT] - begin))
            leaf_QT2[in_segment_QT] = leaf_pairs(lists.combine_chunks())
        return leaf_QT2

    @cached_property
    def _matrices(self) -> list[npt.NDArray[Any]]:
        """Stored vectors [n, m] of each segment."""
        return [segment.matrix.numpy() for segment in self._segments]

    def _spans(self, cuts: list[int]) -> Iterator[tuple[Segment, int, int, int]]:
        for segment, first, begin, end in zip(self._segments, self._first, cuts, cuts[1:], strict=False):
            if begin < end:
                yield segment, first, begin, end

    def best(self, rows: RankedRows, k: int) -> RankedRows:
        """Return the best k results of each query among its best rows [q, t], each result once, ties by id.

        `rows` hold a document in two leaves once; only of passages several rows may belong to one result.
        """
        if self._are_distinct and not _has_ties(rows.score_QT[:, : k + 1]):
            return rows.first(k)  # no id is read
        many_Q, taken = (rows.row_QT >= 0).sum(axis=1), k + _ties(rows.score_QT, k)
        while True:
            some = rows.first(taken)
            table, place_QT = self.documents(some.row_QT, needs="ids")
            number_N = by_name(table[ID])
            # The appended number is the one that row -1 looks up.
            name_QT = np.append(number_N, len(number_N))[place_QT]
            order_QT = np.lexsort((name_QT, -some.score_QT), axis=1)
            some, name_QT = some.take(order_QT), take(name_QT, order_QT)
            dropped_QT = (some.row_QT < 0) | repeated(name_QT)
            best = some.without(dropped_QT).take(np.argsort(dropped_QT, axis=1, kind="stable")[:, :k])
            # Several passages may belong to one result.
            if not (lacks(best.row_QT, k) & (many_Q > taken)).any():
                return best
            taken *= 2

    @cached_property
    def _are_distinct(self) -> bool:
        return not any(segment.holds_passages for segment in self._segments)

    def documents(self, row_QT: Ints, *, needs: Needs) -> tuple[pa.Table, Ints]:
        """Read the columns that `needs` names of rows: a table, and the place [q, t] in it of each row's document."""
        if len(row_QT) == 1 and (row_QT >= 0).all():  # distinct
            order = row_QT[0].argsort()
            distinct, place_QT, none = row_QT[0, order], np.empty_like(row_QT), 0
            place_QT[0, order] = np.arange(len(order))
        else:
            distinct, place = np.unique(row_QT, return_inverse=True)
            none = int((distinct < 0).sum())
            distinct, place_QT = distinct[none:], np.reshape(place, row_QT.shape) - none
        cuts = np.searchsorted(distinct, self.begin_S).tolist()
        tables = [
            segment.take(distinct[begin:end] - first, needs=needs) for segment, first, begin, end in self._spans(cuts)
        ]
        if len(tables) == 1:
            return tables[0], place_QT
        return pa.concat_tables(tables or [pa.table({ID: pa.array([], pa.string())})]), place_QT


class _Memory:
    """Where one thread keeps the vectors of a few queries: new memory for each would take as long as their products."""

    def __init__(self, matrices: Sequence[npt.NDArray[Any]], begin_S: Ints) -> None:
        """Take the stored vectors [n, m] of each segment, and the number of its first row."""
        m, kind = matrices[0].shape[1], matrices[0].dtype
        self._matrices, self._begin_S, self._first = matrices, begin_S, begin_S.tolist()
        self.rows = max(1, KEPT // m)
        """Number of vectors that it holds."""
        self._read_XM, self._stored_XM = (np.empty((self.rows, m), kind) for _ in range(2))
        self._float_XM = torch.empty(0 if kind == np.float32 else self.rows, m)
        self._step = max(1, SERIAL // m)

    def vectors(self, row_GT: Ints) -> Floats:
        """Read vectors [g, t, m] of each query's ascending rows [g, t]; of -1 any. The next call overwrites them."""
        row_X = np.maximum(row_GT.ravel(), 0)
        stored_XM = self._stored_XM[: len(row_X)]
        if len(row_GT) == 1:
            self._read(row_X, stored_XM)
        else:
            order_X = np.argsort(row_X)
            place_X = np.empty_like(order_X)
            place_X[order_X] = np.arange(len(order_X))
            self._read(row_X[order_X], self._read_XM[: len(row_X)])
            self._read_XM.take(place_X, 0, stored_XM, "clip")
        return self._floats(stored_XM).reshape(*row_GT.shape, -1)

    def _read(self, row_X: Ints, out_XM: npt.NDArray[Any]) -> None:
        cuts = np.searchsorted(row_X, self._begin_S).tolist()
        for matrix_NM, first, begin, end in zip(self._matrices, self._first, cuts, cuts[1:], strict=False):
            if begin < end:
                matrix_NM.take(row_X[begin:end] - first, 0, out_XM[begin:end], "clip")

    def _floats(self, stored_XM: npt.NDArray[Any]) -> Floats:
        if not len(self._float_XM):
            return stored_XM
        stored, count = torch.from_numpy(stored_XM), len(stored_XM)
        for begin in range(0, count, self._step):
            self._float_XM[begin : min(begin + self._step, count)].copy_(stored[begin : begin + self._step])
        return self._float_XM[:count].numpy()


def _blocks_read() -> int:
    return resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)).ru_inblock


def _has_ties(score_QT: Floats) -> bool:
    return bool(((score_QT[:, 1:] == score_QT[:, :-1]) & (score_QT[:, 1:] > -np.inf)).any())


def _ties(score_QT: Floats, k: int) -> int:
    ties_QT = (score_QT[:, k:] == score_QT[:, k - 1 : k]) & (score_QT[:, k:] > -np.inf)
    return int(ties_QT.sum(axis=1).max(initial=0))


def in_leaves(leaf_QTR: Ints, leaves_QB: Ints) -> Bools:
    """Mark the documents [q, t] that have one of their leaves [q, t, r] among the query's leaves [q, β]."""
    inside = [np.isin(leaf_TR, leaf_B[leaf_B >= 0]) for leaf_TR, leaf_B in zip(leaf_QTR, leaves_QB, strict=True)]
    return np.asarray(np.reshape(np.array(inside, bool), leaf_QTR.shape).any(axis=2))


def lacks(row_QK: Ints, k: int) -> Bools:
    """Mark the queries [q] that have fewer than k rows."""
    return np.asarray((row_QK >= 0).sum(axis=1) < k)
