"""Rows of an index under one numbering, file after file: their ids, what results show of them, and their vectors.

Shapes: N rows, M embedding size, Q queries, T rows considered, K results, S segments.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import ID, OWN, Needs, Record, Source, by_name, records_of, repeated, take
from rayhier.search import native
from rayhier.search.segment.scan import RankedRows
from rayhier.search.segment.segment import Segment
from rayhier.spec.filter import Filter


class Rows:
    """Rows of an index's segments, numbered segment after segment."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self.begin_S = np.cumsum([0, *(segment.count for segment in segments)])
        """Number of each segment's first row [s + 1]. The last entry is the number of rows."""
        self._first: list[int] = self.begin_S.tolist()

    @property
    def count(self) -> int:
        return self._first[-1]

    def mask(self, where: Filter) -> Bools:
        """Return a mask [n] of the rows: True if a row meets a filter."""
        return np.concatenate([np.zeros(0, bool), *(segment.mask(where) for segment in self._segments)])

    def leaves(self, row_QT: Ints) -> Ints:
        """Return the first and the last leaf [q, t, 2] of rows' documents, and -1 for row -1."""
        leaf_QT2 = np.full((*row_QT.shape, 2), -1)
        for segment, begin, end in zip(self._segments, self._first, self._first[1:], strict=False):
            in_segment_QT = (row_QT >= begin) & (row_QT < end)
            leaf_QT2[in_segment_QT] = segment.leaves[row_QT[in_segment_QT] - begin]
        return leaf_QT2

    def _spans(self, cuts: list[int]) -> Iterator[tuple[Segment, int, int, int]]:
        for segment, first, begin, end in zip(self._segments, self._first, cuts, cuts[1:], strict=False):
            if begin < end:
                yield segment, first, begin, end

    def best(self, rows: RankedRows, k: int) -> RankedRows:
        """Return the best k results of each query among its best rows [q, t], each result once, ties by id.

        `rows` hold a document in two leaves once; only of passages several rows may belong to one result.
        """
        if self.are_distinct and not _has_ties(rows.score_QT[:, : k + 1]):
            return rows.first(k)  # no id is read
        many_Q, taken = (rows.row_QT >= 0).sum(axis=1), k + _ties(rows.score_QT, k)
        while True:
            some = rows.first(taken)
            found, place_QT = self.documents(some.row_QT, needs="ids")
            number_N = by_name(found)
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
    def are_distinct(self) -> bool:
        """True if every row belongs to a separate result."""
        return not any(segment.holds_passages for segment in self._segments)

    def documents(self, row_QT: Ints, *, needs: Needs) -> tuple["FoundRows", Ints]:
        """Return the distinct rows among some [q, t], to read what `needs` names, and the place [q, t] of each row."""
        if len(row_QT) == 1 and (row_QT >= 0).all():  # distinct
            return FoundRows(self, row_QT[0], needs), np.arange(row_QT.shape[1])[None]
        distinct, place = np.unique(row_QT, return_inverse=True)
        none = int((distinct < 0).sum())
        return FoundRows(self, distinct[none:], needs), np.reshape(place, row_QT.shape) - none

    def read(self, row_R: Ints, *, needs: Needs) -> pa.Table:
        """Read the columns that `needs` names of rows [r]."""
        order_R = row_R.argsort()
        ascending_R = row_R[order_R]
        tables = [
            segment.take(ascending_R[begin:end] - first, needs=needs)
            for segment, first, begin, end in self._spans(ascending_R.searchsorted(self.begin_S).tolist())
        ]
        table = pa.concat_tables(tables or [pa.table({ID: pa.array([], pa.string())})])
        return table if (order_R[1:] > order_R[:-1]).all() else table.take(pa.array(order_R.argsort()))

    def records(self, row_R: Ints) -> list[Record]:
        """Read rows [r] as results show them."""
        if self._records is None:
            return records_of(self.read(row_R, needs="texts"))
        taken = self._records.take(row_R)
        if not self._declared or not taken:
            return [(*values, {}) for values in taken]
        fields = self.read(row_R, needs="texts").select(self._declared).to_pylist()
        return [(*values, own) for values, own in zip(taken, fields, strict=True)]

    @cached_property
    def _declared(self) -> list[str]:
        return self._segments[0].declared if self._segments else []

    def ids(self, row_R: Ints) -> list[str]:
        """Read the ids of rows [r]."""
        if self._ids is None:
            return list(self.read(row_R, needs="ids")[ID].to_pylist())
        return [id_ for (id_,) in self._ids.take(row_R)]

    @cached_property
    def _ids(self) -> Any:
        return self._opened([ID])

    @cached_property
    def _records(self) -> Any:
        return self._opened(OWN)

    def _opened(self, names: Sequence[str]) -> Any:
        columns = [segment.columns(names) for segment in self._segments]
        there = [column for column in columns if column is not None]
        return native.columns(there) if len(there) == len(columns) else None


@dataclass(frozen=True)
class FoundRows:
    """Rows that a search found, to be read when somebody needs them."""

    rows: Rows
    row_R: Ints
    """Numbers [r] of the rows."""
    needs: Needs

    def __len__(self) -> int:
        return len(self.row_R)

    def ids(self) -> list[str]:
        return self.rows.ids(self.row_R)

    def read(self) -> pa.Table:
        return self.rows.read(self.row_R, needs=self.needs)

    def records(self) -> list[Record]:
        return self.rows.records(self.row_R)

    def take(self, places: Ints) -> "FoundRows":
        return FoundRows(self.rows, self.row_R[places], self.needs)

    def joined(self, others: Sequence[Source]) -> "FoundRows | None":
        rows = [other.row_R for other in others if isinstance(other, FoundRows) and other.rows is self.rows]
        return (
            None if len(rows) < len(others) else FoundRows(self.rows, np.concatenate([self.row_R, *rows]), self.needs)
        )


def _has_ties(score_QT: Floats) -> bool:
    same_QT = score_QT[:, 1:] == score_QT[:, :-1]
    return bool(same_QT.any() and (same_QT & (score_QT[:, 1:] > -np.inf)).any())


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
