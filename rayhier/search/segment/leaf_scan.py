"""Scans leaves in mapped files. Shapes: Q queries, M embedding size, B leaves (beam), K results, T rows considered."""

import math
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import Needs, Ranking
from rayhier.search.native import scanned_rows, threads_for
from rayhier.search.segment.rows import Rows, lacks
from rayhier.search.segment.scan import RankedRows
from rayhier.search.segment.segment import Segment
from rayhier.spec.filter import Filter
from rayhier.spec.search import SearchSpec
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.shard import Shard

KEPT_FILTERS = 4
"""Number of filters whose matching rows a scan remembers."""
TIED = 8
"""Rows that are fetched beyond the results, since rows may tie with the last."""
_NONE = np.empty(0, np.int64)


class LeafScan:
    """Scans the leaves of an index, or of a range of its leaves."""

    def __init__(
        self,
        open_: Callable[[], Sequence[Segment]],
        leaves: range,
        count: int,
        dimension: int,
        listed: Callable[[int], int] | None = None,
    ) -> None:
        """Take a function that opens the segments of the leaves, and the number of leaves of the index.

        `listed` maps a number of results to the number of rows to rescore. None means the spec's defaults.
        """
        self._open, self._lock = open_, threading.RLock()
        self._listed = listed or SearchSpec().shortlisted
        self.leaves, self._count, self._dimension = leaves, count, dimension

    @classmethod
    def mapped(
        cls,
        leaf_map: LeafMap,
        leaves: range | None = None,
        cache_bytes: float = math.inf,
        listed: Callable[[int], int] | None = None,
    ) -> Self:
        """Open a range of a version's leaves (None: all). Unmapped cached files beyond `cache_bytes` are removed."""
        manifest = leaf_map.manifest
        count = len(manifest.counts)
        leaf_range = range(count) if leaves is None else leaves

        def opened() -> Sequence[Segment]:
            shards = (shard for shard in manifest.shards if _holds_any(leaf_range, shard))
            return [Segment.open(leaf_map, shard, cache_bytes) for shard in shards]

        return cls(opened, leaf_range, count, manifest.dimension, listed)

    def reads(self, shard: Shard) -> bool:
        """Return True if a shard has rows in this scan's leaves, so that `segments` includes the shard's segment."""
        return _holds_any(self.leaves, shard)

    @property
    def holds_passages(self) -> bool:
        """True if several rows with different texts may belong to one result."""
        return any(segment.holds_passages for segment in self.segments)

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, opened at first use. InputError if a file is not as it was published."""
        with self._lock:
            return self._segments

    @cached_property
    def _segments(self) -> Sequence[Segment]:
        return self._open()

    @cached_property
    def rows(self) -> Rows:
        return Rows(self.segments)

    @property
    def _native(self) -> Any:
        with self._lock:
            return self._opened

    @cached_property
    def _opened(self) -> Any:
        files = [segment.file(self.leaves) for segment in self.segments]
        return scanned_rows(self._dimension, self._count, files)

    @property
    def is_open(self) -> bool:
        """True once the segments' files were opened."""
        return "_opened" in self.__dict__

    def open(self) -> None:
        """Open every segment now. InputError if a file is not as it was published."""
        _ = self._native

    def warm(self, most: float) -> None:
        """Read the stored vectors into memory if they take at most `most` bytes, so that first searches are fast."""
        if sum(segment.stored.nbytes for segment in self.segments) <= most:
            for segment in self.segments:
                segment.warm()

    def holds(self, names: Collection[str]) -> set[str]:
        """Return the names that are ids of results in this scan's leaves. Opens every segment."""
        name_N, present = pa.array(list(names), pa.string()), set[str]()
        for segment in self.segments:
            ids = segment.ids()
            present.update(ids.filter(pc.is_in(ids, name_N)).to_pylist())
        return present

    def intact(self) -> bool:
        """Return True if the files of all open segments are unchanged since they were opened."""
        return "_segments" not in self.__dict__ or all(segment.intact() for segment in self.segments)

    def scan(
        self, query_QM: Floats, leaves_QB: Ints, k: int, where: Filter | None = None, *, needs: Needs = "texts"
    ) -> Ranking:
        """Rank the best k results of each query [q, m] in its leaves [q, β], among documents that meet `where`."""
        return self._ranked(query_QM, leaves_QB, k, self._listed, where, needs)

    def exact(self, query_QM: Floats, k: int, among: Callable[[int], range], where: Filter | None = None) -> Ranking:
        """Rank the best k results of each query [q, m] by vectors. `among` maps the number of leaves to a range."""
        part = among(len(self.leaves))
        leaf_B = np.array(self.leaves[part.start : part.stop], dtype=np.int64)
        everything = np.tile(leaf_B, (len(query_QM), 1))
        return self._ranked(query_QM, everything, k, lambda _: self.rows.count, where, "ids")

    def _ranked(
        self,
        query_QM: Floats,
        leaves_QB: Ints,
        k: int,
        listed: Callable[[int], int],
        where: Filter | None,
        needs: Needs,
    ) -> Ranking:
        fetch = (k if self.rows.are_distinct else 2 * k) + TIED
        ranked, compared_Q = self.candidates(query_QM, leaves_QB, fetch, listed(fetch), where)
        best = self.rows.best(ranked, k)
        short_A = _NONE if self.rows.are_distinct else np.flatnonzero((compared_Q > fetch) & lacks(best.row_QT, k))
        while len(short_A):
            fetch *= 2  # many rows belong to few results
            more, _ = self.candidates(query_QM[short_A], leaves_QB[short_A], fetch, listed(fetch), where)
            best = best.replaced(short_A, found := self.rows.best(more, k))
            short_A = short_A[(compared_Q[short_A] > fetch) & lacks(found.row_QT, k)]
        documents, row_QK = self.rows.documents(best.row_QT, needs=needs)
        leaves_Q = (leaves_QB >= 0).sum(axis=1)
        return Ranking(best.score_QT, row_QK, documents, compared_Q, compared_Q, leaves_Q)

    def candidates(
        self, query_QM: Floats, leaves_QB: Ints, k: int, listed: int, where: Filter | None = None
    ) -> tuple[RankedRows, Ints]:
        """Find the k best rows of each query in its leaves [q, β]. Returns also how many rows were compared [q]."""
        native, mask_N = self._native, None if where is None else self.mask(where)
        queries = np.ascontiguousarray(query_QM, np.float32)
        leaves = None if self._visit_all(leaves_QB) else np.ascontiguousarray(leaves_QB, np.int64)
        most, threads = min(k, native.count), threads_for(len(queries))
        row_QK, score_QK, compared_Q = native.scan(queries, leaves, most, listed, mask_N, threads)
        return RankedRows(score_QK, row_QK), compared_Q

    def _visit_all(self, leaves_QB: Ints) -> bool:
        if not leaves_QB.size or leaves_QB.shape[1] != self._count:
            return False
        if leaves_QB.min() < 0 or leaves_QB.max() >= self._count:
            return False
        is_visited_QL = np.zeros(leaves_QB.shape, bool)
        is_visited_QL[np.arange(len(leaves_QB))[:, None], leaves_QB] = True
        return bool(is_visited_QL.all())

    def products(self, query_QM: Floats, row_QT: Ints) -> Floats:
        """Compute the inner products [q, t] of queries [q, m] and stored vectors of rows [q, t]. Row -1 gets -inf."""
        queries, rows = np.ascontiguousarray(query_QM, np.float32), np.ascontiguousarray(row_QT, np.int64)
        return np.asarray(self._native.products(queries, rows))

    def mask(self, where: Filter) -> Bools:
        """Mark [n] the rows that meet the filter."""
        return self._mask(where)

    @cached_property
    def _mask(self) -> Callable[[Filter], Bools]:
        scan = weakref.proxy(self)  # avoids a cycle, which would keep the files until garbage is collected
        return lru_cache(KEPT_FILTERS)(lambda where: scan.rows.mask(where))


def _holds_any(leaves: range, shard: Shard) -> bool:
    return any(leaf in leaves for leaf in shard.leaves)
