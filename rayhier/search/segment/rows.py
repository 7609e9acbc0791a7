"""Rows of an index, numbered file after file. Shapes: N rows, Q queries, T rows considered, K results, S segments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import ID, OWN, Needs, Record, Source, by_name, ordered, records_of, repeated, take
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
        """Mark [n] the rows that meet a filter."""
        return np.concatenate([np.zeros(0, bool), *(segment.mask(where) for segment in self._segments)])

    def leaves(self, row_QT: Ints) -> Ints:
        """Return the first and the last leaf [q, t, 2] of rows' documents, and -1 for row -1."""
        row_X = row_QT.ravel()
        order_X, leaf_X2 = row_X.argsort(), np.full((row_X.size, 2), -1)
        cuts = row_X[order_X].searchsorted(self.begin_S).tolist()
        for segment, first, begin, end in self._spans(cuts):
            leaf_X2[order_X[begin:end]] = segment.leaves[row_X[order_X[begin:end]] - first]
        return leaf_X2.reshape(*row_QT.shape, 2)

    def _spans(self, cuts: list[int]) -> Iterator[tuple[Segment, int, int, int]]:
        for segment, first, begin, end in zip(self._segments, self._first, cuts, cuts[1:], strict=False):
            if begin < end:
                yield segment, first, begin, end

    def best(self, rows: RankedRows, k: int) -> RankedRows:
        """Return the best k results of each query among its best rows [q, t], each result once, ties by id."""
        if self.are_distinct and not _has_ties(rows.score_QT[:, : k + 1]):
            return rows.first(k)  # no id is read
        taken = k + _ties(rows.score_QT, k)
        if self.are_distinct:
            some = rows.first(taken)
            found, place_QT = self.documents(some.row_QT, needs="ids")
            return some.take(ordered(some.score_QT, place_QT, by_name(found))[:, :k])
        many_Q = (rows.row_QT >= 0).sum(axis=1)
        while True:
            some = rows.first(taken)
            found, place_QT = self.documents(some.row_QT, needs="ids")
            number_N = by_name(found)
            order_QT = ordered(some.score_QT, place_QT, number_N)
            some, name_QT = some.take(order_QT), take(np.append(number_N, len(number_N))[place_QT], order_QT)
            dropped_QT = (some.row_QT < 0) | repeated(name_QT)
            best = some.without(dropped_QT).take(np.argsort(dropped_QT, axis=1, kind="stable")[:, :k])
            # Several passages may belong to one result.
            if not (lacks(best.row_QT, k) & (many_Q > taken)).any():
                return best
            taken *= 2

    @cached_property
    def are_distinct(self) -> bool:
        return not any(segment.holds_passages for segment in self._segments)

    def documents(self, row_QT: Ints, *, needs: Needs) -> tuple["FoundRows", Ints]:
        """Return the distinct rows among rows [q, t], with columns `needs`, and each row's place [q, t] among them."""
        if len(row_QT) == 1 and (row_QT >= 0).all():  # distinct
            return FoundRows(self, row_QT[0], needs), np.arange(row_QT.shape[1])[None]
        distinct, place = np.unique(row_QT, return_inverse=True)
        none = int((distinct < 0).sum())
        return FoundRows(self, distinct[none:], needs), np.reshape(place, row_QT.shape) - none

    def read(self, row_R: Ints, *, needs: Needs) -> pa.Table:
        """Read rows [r] of the segments, with the columns that `needs` names."""
        order_R = row_R.argsort()
        ascending_R = row_R[order_R]
        tables = [
            segment.take(ascending_R[begin:end] - first, needs=needs)
            for segment, first, begin, end in self._spans(ascending_R.searchsorted(self.begin_S).tolist())
        ]
        table = pa.concat_tables(tables or [pa.table({ID: pa.array([], pa.string())})])
        return table if (order_R[1:] > order_R[:-1]).all() else table.take(pa.array(order_R.argsort()))

    def records(self, row_R: Ints) -> list[Record]:
        """Read rows [r] of the segments in the form of results."""
        if self._records is None:
            return records_of(self.read(row_R, needs="texts"))
        taken = self._records.take(row_R)
        if not any(segment.declared for segment in self._segments):
            return [(*values, {}) for values in taken]
        number_R = np.searchsorted(self.begin_S, row_R, side="right") - 1
        places = zip(taken, number_R.tolist(), (row_R - self.begin_S[number_R]).tolist(), strict=True)
        return [(*values, self._segments[number].fields(row)) for values, number, row in places]

    def ids(self, row_R: Ints) -> list[str]:
        if self._ids is None:
            return list(self.read(row_R, needs="ids")[ID].to_pylist())
        return [id_ for (id_,) in self._ids.take(row_R)]

    def ranks(self, row_R: Ints) -> Ints:
        """Return the place [r] of each row's id in the sorted order of the distinct ids."""
        if self._ids is None:
            return by_name(self.read(row_R, needs="ids"))
        return np.asarray(self._ids.ranks(row_R))

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
    """Rows that a search found, to be read when needed."""

    rows: Rows
    row_R: Ints
    needs: Needs

    def __len__(self) -> int:
        return len(self.row_R)

    def ids(self) -> list[str]:
        return self.rows.ids(self.row_R)

    def ranks(self) -> Ints:
        return self.rows.ranks(self.row_R)

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
    is_inside_QTR = np.zeros(leaf_QTR.shape, bool)
    is_visited_L = np.zeros(2 + max(leaf_QTR.max(initial=-1), leaves_QB.max(initial=-1)), bool)  # leaf -1 is the last
    for is_inside_TR, leaf_TR, leaf_B in zip(is_inside_QTR, leaf_QTR, leaves_QB, strict=True):
        is_visited_L[leaf_B], is_visited_L[-1] = True, False
        is_inside_TR[:] = is_visited_L[leaf_TR]
        is_visited_L[leaf_B] = False
    return np.asarray(is_inside_QTR.any(axis=2))


def lacks(row_QK: Ints, k: int) -> Bools:
    """Mark the queries [q] that have fewer than k rows."""
    return np.asarray((row_QK >= 0).sum(axis=1) < k)
