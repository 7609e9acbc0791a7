"""Scans leaves: finds the best documents of each query in the leaves that it visits, over all segments.

Evaluation scans segments in memory, search and serving scan mapped ones, opened when a query first needs them.

Shapes: Q queries, M embedding size, B leaves probed (beam), K results, S segments, T rows considered, A queries that
have leaves in a segment.
"""

import math
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import ID, Ranking, by_name, once, padded, repeated, take
from rayhier.search import codecs
from rayhier.search.lists import Places
from rayhier.search.segment import MappedSegment, MemorySegment, Segment
from rayhier.spec.filter import Filter
from rayhier.spec.search import LOSSLESS, Codec
from rayhier.storage.leaf_map import LeafMap, Shard

KEPT = 6
"""Most rows that are collected for a query before the worst are dropped, as a multiple of the rows to fetch."""


class LeafScan:
    """Scans the leaves of an index, or of a range of its leaves; the leaves lie in segments."""

    def __init__(self, slots: "Sequence[Slot]", codec: Codec, leaves: range) -> None:
        self._slots, self.codec, self.leaves = list(slots), codec, leaves

    @classmethod
    def mapped(
        cls,
        leaf_map: LeafMap,
        codec: Codec | None = None,
        leaves: range | None = None,
        cache_bytes: float = math.inf,
    ) -> Self:
        """Open one version of a leaf map, or a range of its leaves, with files mapped into memory.

        Without a `codec`, vectors keep the stored precision. Files kept on this machine for all indexes stay within
        `cache_bytes`, except those that are mapped.
        """
        manifest = leaf_map.manifest
        used_codec = codec or LOSSLESS[manifest.vectors]
        leaf_range = range(len(manifest.counts)) if leaves is None else leaves

        def opener(shard: Shard) -> Callable[[], Segment]:
            return lambda: MappedSegment.open(leaf_map, shard, used_codec, cache_bytes)

        slots = [
            Slot([leaf for leaf in shard.leaves if leaf in leaf_range], opener(shard)) for shard in manifest.shards
        ]
        return cls(slots, used_codec, leaf_range)

    @classmethod
    def memory(cls, segment: MemorySegment) -> Self:
        """Make a scan of a single segment in memory, which holds every leaf."""
        leaves = range(len(segment.lists.sizes))
        return cls([Slot(leaves, lambda: segment)], "flat", leaves)

    def open(self) -> None:
        """Open every segment now; InputError where a file is not as it was published."""
        for slot in self._slots:
            if slot.holds_leaves:
                _ = slot.segment.lists

    def holds(self, names: Collection[str]) -> set[str]:
        """Return those of some ids that are results' ids in this scan's leaves; opens every segment."""
        name_N, present = pa.array(list(names), pa.string()), set[str]()
        for slot in self._slots:
            if slot.holds_leaves:
                ids = slot.segment.ids()
                present.update(ids.filter(pc.is_in(ids, name_N)).to_pylist())
        return present

    def intact(self) -> bool:
        """Return True if the files of all open segments are unchanged since they were opened."""
        return all(slot.intact() for slot in self._slots)

    def scan(
        self, query_QM: Floats, leaves_QB: Ints, k: int, where: Filter | None = None, *, with_vectors: bool = False
    ) -> Ranking:
        """Rank the best k results of each query [q, m] in those of its leaves [q, β] that this scan holds; -1: none.

        Documents that do not meet the filter `where` are neither scored nor counted. With `with_vectors`, the ranking's
        documents have the columns `doc_id` and `vector` too.
        """
        fetch = k * max(1, codecs.AGAIN[self.codec])
        first = self.candidates(query_QM, leaves_QB, k, fetch, where)
        score_QK, row_QK, documents, _ = self.results(first.rows, k, with_vectors=with_vectors)
        tables, short_A = [documents], np.flatnonzero(~first.whole_Q & _lacks(row_QK, k))
        while len(short_A):
            fetch *= 2  # many rows belong to few results
            more = self.candidates(query_QM[short_A], leaves_QB[short_A], k, fetch, where)
            score_AK, row_AK, documents, _ = self.results(more.rows, k, with_vectors=with_vectors)
            begin, width = sum(table.num_rows for table in tables), row_AK.shape[1]
            score_QK, row_QK = padded(score_QK, width, -np.inf), padded(row_QK, width, -1)
            score_QK[short_A, :width], row_QK[short_A, :width] = score_AK, np.where(row_AK >= 0, row_AK + begin, -1)
            tables.append(documents)
            short_A = short_A[~more.whole_Q & _lacks(row_AK, k)]
        leaves_Q = (leaves_QB >= 0).sum(axis=1)
        return Ranking(score_QK, row_QK, pa.concat_tables(tables), first.visited_Q, first.scanned_Q, leaves_Q)

    def candidates(
        self, query_QM: Floats, leaves_QB: Ints, k: int, fetch: int | None = None, where: Filter | None = None
    ) -> "Candidates":
        """Find the best rows of each query in its leaves [q, β], over all segments: at least k where there are as many.

        A result has a single row in each segment. Where the codec loses precision, the best `fetch` rows are scored
        again.
        """
        again = codecs.AGAIN[self.codec] > 0
        fetch = fetch or k * max(1, codecs.AGAIN[self.codec])
        q = len(query_QM)
        own_QB = np.where((leaves_QB >= self.leaves.start) & (leaves_QB < self.leaves.stop), leaves_QB, -1)
        visited_Q, scanned_Q = np.zeros(q, dtype=np.int64), np.zeros(q, dtype=np.int64)
        best = _Best(q, fetch)
        for number, slot in enumerate(self._slots):
            query_A = np.flatnonzero((slot.place(own_QB) >= 0).any(axis=1))
            if not len(query_A):
                continue
            segment = slot.segment
            lists = segment.lists if where is None else segment.matching(where)
            most = min(fetch, int(lists.sizes.sum()))
            if not most:  # all its rows were removed, or none matches
                continue
            queries = slice(None) if len(query_A) == q else query_A  # not copied where all queries need the segment
            query_AM, own_AB, all_AB = query_QM[queries], own_QB[queries], leaves_QB[queries]
            # Only the stored vectors tell which passage of a document is the best.
            scan = lists.scan_rows if again and segment.holds_passages else lists.scan
            score, row = scan(query_AM, own_AB, most)
            best.put(number, query_A, score, row)
            visited, scanned = lists.count(own_AB, all_AB)
            visited_Q[query_A] += visited
            scanned_Q[query_A] += scanned
        rows, whole_Q = best.rows(), ~best.cut_Q
        if again:
            rows = rows.first(fetch)
            whole_Q = (rows.row_QT >= 0).sum(axis=1) < fetch
            rows = self._exact(query_QM, rows)
        return Candidates(rows, visited_Q, scanned_Q, whole_Q)

    def _exact(self, query_QM: Floats, rows: "RankedRows") -> "RankedRows":
        """Score rows by their stored vectors, best first; keeps only the best row of each result in a segment."""
        score_QT, result_QT, before = np.full_like(rows.score_QT, -np.inf), np.full_like(rows.row_QT, -1), 0
        for number in np.unique(rows.segment_QT[rows.row_QT >= 0]).tolist():
            query_A, place_A = np.nonzero(rows.segment_QT == number)
            row_A, segment = rows.row_QT[query_A, place_A], self._slots[number].segment
            score_QT[query_A, place_A] = segment.scores(query_QM[query_A], row_A)
            copies = segment.lists.copies
            result_QT[query_A, place_A] = before + (row_A if copies is None else copies.result_N[row_A])
            before += segment.lists.rows
        order_QT = np.argsort(-score_QT, axis=1, kind="stable")
        dropped_QT = repeated(take(result_QT, order_QT))
        exact = RankedRows(score_QT, rows.segment_QT, rows.row_QT).take(order_QT).without(dropped_QT)
        return exact.take(np.argsort(dropped_QT, axis=1, kind="stable"))

    def documents(self) -> Iterator[tuple[int, Ints, pa.Table]]:
        """Yield for each segment its number, the rows [n] of documents whose best leaf is in this scan, and a table.

        Every document occurs once. The tables have a row for each of these rows: `title` and `text`; where the corpus
        is cut into passages, the passage's `doc_id` and its result's `id` too.
        """
        for number, slot in enumerate(self._slots):
            if slot.holds_leaves:
                row_N, table = slot.segment.documents(self.leaves)
                yield number, row_N, table

    def mask(self, segment: int, where: Filter) -> Bools:
        """Return a mask [n] of the rows of the segment numbered `segment`: True where a row meets the filter."""
        return self._slots[segment].segment.matching(where).mask

    def results(self, rows: "RankedRows", k: int, *, with_vectors: bool = False) -> tuple[Floats, Ints, pa.Table, Ints]:
        """Rank the best k results of each query, ties by id, among its best rows.

        Returns scores [q, k]; rows [q, k] of a table; this table, of documents; and rows [q, t] of the table for the
        best of `rows`, several of which may belong to one result. With `with_vectors`, the table has the columns
        `doc_id` and `vector` too.
        """
        many_Q, taken = (rows.row_QT >= 0).sum(axis=1), k
        while True:
            some = rows.first(taken)
            table, place_QT = self._take(some, with_vectors=with_vectors)
            number_N = by_name(table[ID])
            # The appended number is the one that row -1 looks up.
            order = np.lexsort((np.append(number_N, len(number_N))[place_QT], -some.score_QT), axis=1)
            score_QK, place_QK = once(take(some.score_QT, order), take(place_QT, order), number_N, k)
            # A result may lie in several segments.
            if not (_lacks(place_QK, k) & (many_Q > taken)).any():
                return score_QK, place_QK, table, place_QT
            taken *= 2

    def _take(self, rows: "RankedRows", *, with_vectors: bool) -> tuple[pa.Table, Ints]:
        """Return a table of the rows' documents, and the place [q, t] in it of each row's document."""
        place_QT, tables, begin = np.full(rows.row_QT.shape, -1), [pa.table({ID: pa.array([], pa.string())})], 0
        for number in np.unique(rows.segment_QT[rows.segment_QT >= 0]).tolist():
            in_segment_QT = rows.segment_QT == number
            distinct, place = np.unique(rows.row_QT[in_segment_QT], return_inverse=True)
            tables.append(self._slots[number].segment.take(distinct, with_vectors=with_vectors))
            place_QT[in_segment_QT] = begin + place
            begin += len(distinct)
        return pa.concat_tables(tables[1:] or tables), place_QT


class Slot:
    """A segment, the rows of one shard, which is opened at first use, and the numbers of its leaves."""

    def __init__(self, leaves: Sequence[int], open_: Callable[[], Segment]) -> None:
        self._open, self._lock = open_, threading.Lock()
        self._segment: Segment | None = None
        self.place = Places(np.array(leaves, dtype=np.int64))
        """Function that gives a leaf's position among the segment's leaves; -1 for a leaf that it does not hold."""
        self.holds_leaves = len(leaves) > 0

    @property
    def segment(self) -> Segment:
        """The segment, opened at first use; InputError where its file is not as published."""
        if self._segment is None:
            with self._lock:
                self._segment = self._segment or self._open()
        return self._segment

    def intact(self) -> bool:
        """Return True if the segment is not open, or is unchanged since it was opened."""
        return self._segment is None or self._segment.intact()


@dataclass(frozen=True)
class RankedRows:
    """Rows found for every query [q, t], highest score first, with scores and segments; -inf and -1 for none."""

    score_QT: Floats
    segment_QT: Ints
    row_QT: Ints

    @classmethod
    def none(cls, q: int, columns: int = 0) -> Self:
        """Make `columns` empty columns for q queries: score -inf, segment and row -1."""
        shape = q, columns
        return cls(np.full(shape, -np.inf, dtype=np.float32), np.full(shape, -1), np.full(shape, -1))

    @classmethod
    def joined(cls, parts: "Sequence[RankedRows]") -> "RankedRows":
        """Join the rows that several parts found for the same queries, highest score first."""
        score_QT, segment_QT, row_QT = (
            np.concatenate([getattr(part, name) for part in parts], axis=1)
            for name in ("score_QT", "segment_QT", "row_QT")
        )
        return cls(score_QT, segment_QT, row_QT).take(np.argsort(-score_QT, axis=1, kind="stable"))

    def among(self, q: int, query_A: Ints) -> "RankedRows":
        """Spread these rows, found for the queries numbered `query_A`, over all q queries; the others have none."""
        spread = RankedRows.none(q, self.row_QT.shape[1])
        spread.score_QT[query_A], spread.segment_QT[query_A], spread.row_QT[query_A] = (
            self.score_QT,
            self.segment_QT,
            self.row_QT,
        )
        return spread

    def take(self, place_QK: Ints) -> "RankedRows":
        """Reorder or select each query's rows by their places [q, k]."""
        return RankedRows(take(self.score_QT, place_QK), take(self.segment_QT, place_QK), take(self.row_QT, place_QK))

    def first(self, count: int) -> "RankedRows":
        """Return the first `count` rows of every query."""
        return RankedRows(self.score_QT[:, :count], self.segment_QT[:, :count], self.row_QT[:, :count])

    def without(self, gone_QT: Bools) -> "RankedRows":
        """Empty the rows where `gone_QT` [q, t] is True: score -inf, segment and row -1."""
        no_score = np.float32(-np.inf)
        return RankedRows(
            np.where(gone_QT, no_score, self.score_QT),
            np.where(gone_QT, -1, self.segment_QT),
            np.where(gone_QT, -1, self.row_QT),
        )


@dataclass(frozen=True)
class Candidates:
    """The best rows of every query over all segments, and how many documents and rows were scored for them."""

    rows: RankedRows
    visited_Q: Ints
    """Number [q] of distinct documents scored; a document in two leaves of a query counts in the first of these
    only."""
    scanned_Q: Ints
    """Number of rows scored [q]."""
    whole_Q: Bools
    """True [q] where no row was left out that could give a query another result."""


class _Best:
    """Collects the best rows of every query over segments; drops rows that cannot be among the best `fetch`."""

    def __init__(self, q: int, fetch: int) -> None:
        self._fetch, self._parts = fetch, [RankedRows.none(q)]
        self.cut_Q = np.zeros(q, dtype=bool)
        """True [q] where rows of a query were dropped."""

    def put(self, segment: int, query_A: Ints, score_AK: Floats, row_AK: Ints) -> None:
        """Add the rows [a, k] that a segment has for the queries numbered `query_A`."""
        part = RankedRows(score_AK, np.where(row_AK < 0, -1, segment), row_AK)
        self._parts.append(part if len(query_A) == len(self.cut_Q) else part.among(len(self.cut_Q), query_A))
        if sum(part.row_QT.shape[1] for part in self._parts) > KEPT * self._fetch:
            most = 2 * self._fetch  # a document in two leaves is two rows
            best = self.rows()
            self.cut_Q |= (best.row_QT[:, most:] >= 0).any(axis=1)
            self._parts = [best.first(most)]

    def rows(self) -> RankedRows:
        """Return each query's rows of all segments, best first."""
        return RankedRows.joined(self._parts)


def _lacks(row_QK: Ints, k: int) -> Bools:
    """Mark the queries [q] that have fewer than k rows."""
    return np.asarray((row_QK >= 0).sum(axis=1) < k)
