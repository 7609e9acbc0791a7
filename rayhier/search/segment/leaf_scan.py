"""Scans leaves: finds the best documents of each query in the leaves that it visits.

Rows are in mapped files, which are opened at the first search.

Shapes: Q queries, M embedding size, B leaves probed (beam), K results, T rows considered.
"""

import math
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import cached_property, lru_cache
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import ID, Needs, Ranking
from rayhier.dataset.words import word_hashes
from rayhier.search.segment.codebook import Codebook, codebook_of
from rayhier.search.segment.lists import Chosen, FileLists, LeafLists
from rayhier.search.segment.rows import Rows, in_leaves, lacks
from rayhier.search.segment.scan import RankedRows
from rayhier.search.segment.segment import Segment
from rayhier.spec.filter import Filter
from rayhier.spec.search import LOSSLESS, Codec, SearchSpec
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.shard import Shard

KEPT_FILTERS = 4
"""Number of filters whose matching rows a scan remembers."""


class LeafScan:
    """Scans the leaves of an index, or of a range of its leaves."""

    def __init__(
        self,
        open_: Callable[[], Sequence[Segment]],
        leaves: range,
        codec: Codec = "flat",
        listed: Callable[[int], int] | None = None,
        codebook: Codebook | None = None,
    ) -> None:
        """Take a function that opens the segments in which the leaves lie, and the codebook of their codec `pq`.

        `listed` tells how many rows are scored again for a number of results, if the codec loses precision.
        None stands for the spec's defaults.
        """
        self._open, self._lock = open_, threading.RLock()
        self._listed = listed or SearchSpec().shortlisted
        self.leaves, self.codec, self.codebook = leaves, codec, codebook

    @classmethod
    def mapped(
        cls,
        leaf_map: LeafMap,
        codec: Codec | None = None,
        leaves: range | None = None,
        cache_bytes: float = math.inf,
        listed: Callable[[int], int] | None = None,
    ) -> Self:
        """Open one version of a leaf map, or a range of its leaves, with files mapped into memory.

        Without a `codec`, vectors keep the stored precision. So do they where `pq` is named but there are too few
        vectors to train its codebook. Files kept on this machine for all indexes stay within `cache_bytes`, except
        those that are mapped.
        """
        manifest, codebook = leaf_map.manifest, None
        used_codec = codec or LOSSLESS[manifest.vectors]
        if used_codec == "pq":
            codebook = codebook_of(leaf_map, cache_bytes)
            used_codec = "pq" if codebook is not None else LOSSLESS[manifest.vectors]
        leaf_range = range(len(manifest.counts)) if leaves is None else leaves

        def opened() -> Sequence[Segment]:
            return [
                Segment.open(leaf_map, shard, used_codec, cache_bytes, codebook)
                for shard in manifest.shards
                if _holds_any(leaf_range, shard)
            ]

        return cls(opened, leaf_range, used_codec, listed, codebook)

    def reads(self, shard: Shard) -> bool:
        """Return True if a shard has rows in this scan's leaves: its segment is then among `segments`."""
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
        """Rows of all segments: their ids, columns and vectors."""
        return Rows(self.segments)

    @property
    def lists(self) -> LeafLists:
        """Inverted lists of all segments."""
        with self._lock:
            return self._lists

    @cached_property
    def _lists(self) -> LeafLists:
        files, begin = list[FileLists](), 0
        for segment in self.segments:
            files.append(segment.lists_from(begin))
            begin += files[-1].rows
        return LeafLists(files, self.leaves, self.codebook)

    @cached_property
    def _matching(self) -> Callable[[Filter], Chosen]:
        scan = weakref.proxy(self)  # else a cycle, which keeps the lists until garbage is collected
        return lru_cache(KEPT_FILTERS)(lambda where: scan.lists.choose(scan.mask(where)))

    @property
    def is_open(self) -> bool:
        """True once the segments' lists were read."""
        return "_lists" in self.__dict__

    def open(self) -> None:
        """Open every segment now. InputError if a file is not as it was published."""
        _ = self.lists

    def warm(self, most: float) -> None:
        """Read the stored vectors into memory, where they take at most `most` bytes: the first searches are as fast."""
        if self.codec == "pq" and sum(segment.matrix.nbytes for segment in self.segments) <= most:
            for segment in self.segments:
                segment.warm()

    def holds(self, names: Collection[str]) -> set[str]:
        """Return those of some ids that are results' ids in this scan's leaves; opens every segment."""
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
        """Rank the best k results of each query [q, m] in its leaves [q, β] that this scan holds.

        Documents that do not meet the filter `where` are neither scored nor counted. The ranking's documents have
        the columns that `needs` names.
        """
        lists, chosen, fetch = self.lists, self._chosen(where), self._fetched(k)
        visited_Q, scanned_Q = lists.count(leaves_QB, chosen)
        best = self.rows.best(self.candidates(query_QM, leaves_QB, k, fetch, where), k)
        short_A = np.flatnonzero((scanned_Q > fetch) & lacks(best.row_QT, k))
        while len(short_A):
            fetch *= 2  # many rows belong to few results
            more = self.candidates(query_QM[short_A], leaves_QB[short_A], k, fetch, where)
            best = best.replaced(short_A, found := self.rows.best(more, k))
            short_A = short_A[(scanned_Q[short_A] > fetch) & lacks(found.row_QT, k)]
        if self.codec == "pq" and self.holds_passages:  # codes may have found a worse passage of a result
            ranked = self.passages(query_QM, best.row_QT, leaves_QB)
            best, scanned_Q = self.rows.best(ranked, k), scanned_Q + (ranked.row_QT >= 0).sum(axis=1)
        table, row_QK = self.rows.documents(best.row_QT, needs=needs)
        leaves_Q = (leaves_QB >= 0).sum(axis=1)
        return Ranking(best.score_QT, row_QK, table, visited_Q, scanned_Q, leaves_Q)

    def passages(self, query_QM: Floats, row_QK: Ints, leaves_QB: Ints) -> RankedRows:
        """Score the passages of each query's results, rows [q, k], that lie in its leaves [q, β]."""
        documents, row_QK = self.rows.documents(row_QK, needs="ids")
        names, rows_of = np.array([*documents[ID].to_pylist(), None], object), defaultdict[str, list[int]](list)
        hash_X = word_hashes(set(names[:-1]))
        for segment, begin in zip(self.segments, self.rows.begin_S.tolist(), strict=False):
            row_X = segment.with_ids(hash_X)
            for name, row in zip(segment.ids().take(pa.array(row_X)).to_pylist(), row_X.tolist(), strict=True):
                rows_of[name].append(begin + row)
        found = [[row for name in {*names_K} for row in rows_of.get(name, [])] for names_K in names[row_QK].tolist()]
        row_QT = np.full((len(found), max(map(len, found), default=0)), -1)
        for row_T, rows in zip(row_QT, found, strict=True):
            row_T[: len(rows)] = rows
        row_QT = np.where(in_leaves(self.rows.leaves(row_QT), leaves_QB), row_QT, -1)
        return RankedRows(self.rows.products(query_QM, row_QT), row_QT).ordered()

    def exact(self, query_QM: Floats, k: int, among: Callable[[int], range], where: Filter | None = None) -> Ranking:
        """Rank the best k results of each query [q, m] in a part of the rows, all of which are compared by vectors.

        `among` returns which of a number of leaves, or of rows where the codec loses precision, belong to the part.
        """
        if self.codec != "pq":
            part = among(len(self.leaves))
            leaf_B = np.array(self.leaves[part.start : part.stop], dtype=np.int64)
            if not len(leaf_B):
                return Ranking.none(len(query_QM))
            return self.scan(query_QM, np.tile(leaf_B, (len(query_QM), 1)), k, where, needs="ids")
        row_T = np.array(among(int(self.rows.begin_S[-1])), dtype=np.int64)
        if where is not None:
            row_T = row_T[self.mask(where)[row_T]]
        ranked = self.rows.scored(query_QM, np.tile(row_T, (len(query_QM), 1)))
        best = self.rows.best(ranked, k)
        table, row_QK = self.rows.documents(best.row_QT, needs="ids")
        scored_Q = np.full(len(query_QM), len(row_T))
        return Ranking(best.score_QT, row_QK, table, scored_Q, scored_Q, np.zeros_like(scored_Q))

    def candidates(
        self, query_QM: Floats, leaves_QB: Ints, k: int, fetch: int | None = None, where: Filter | None = None
    ) -> RankedRows:
        """Find the best rows of each query in its leaves [q, β]: at least k results' where there are as many.

        A document, or a passage, has a single row. Where the codec loses precision, the best `fetch` rows are scored
        again.
        """
        lists, chosen, fetch = self.lists, self._chosen(where), fetch or self._fetched(k)
        ranked = lists.scan(query_QM, leaves_QB, min(fetch, chosen.rows), chosen)
        if self.codec == "pq":
            # Only the stored vectors tell which passage of a document is the best.
            whole_Q = lists.scanned(leaves_QB, chosen) <= fetch
            ranked = self.rows.scored(query_QM, _without_ties(ranked, whole_Q, k))
        again_QT = lists.again(ranked.row_QT, leaves_QB)
        if again_QT.any():
            ranked = ranked.without(again_QT).take(np.argsort(again_QT, axis=1, kind="stable"))
        return ranked

    def _chosen(self, where: Filter | None) -> Chosen:
        return self.lists.all if where is None else self._matching(where)

    def _fetched(self, k: int) -> int:
        if self.codec == "pq":
            return self._listed(k)
        return k if self.lists.lower_N is None else 2 * k

    def mask(self, where: Filter) -> Bools:
        """Return a mask [n] of all rows: True if a row meets the filter."""
        return self._mask(where)

    @cached_property
    def _mask(self) -> Callable[[Filter], Bools]:
        return lru_cache(KEPT_FILTERS)(self.rows.mask)


def _holds_any(leaves: range, shard: Shard) -> bool:
    return any(leaf in leaves for leaf in shard.leaves)


def _without_ties(ranked: RankedRows, whole_Q: Bools, k: int) -> Ints:
    """Return the rows [q, t] without those that tie with the last one, unless fewer than k stay or no row is missing.

    Sums of codes are often equal. Which of the equal rows faiss takes last depends on the order of its scan, and so on
    the other queries of a batch. The rows above them do not.
    """
    above_QT = ranked.score_QT > ranked.score_QT[:, -1:]
    above_Q = above_QT.sum(axis=1)
    if len(above_Q) == 1:
        return ranked.row_QT if whole_Q[0] or above_Q[0] < k else ranked.row_QT[:, : above_Q[0]]
    above_QT[whole_Q | (above_Q < k)] = True
    return np.where(above_QT, ranked.row_QT, -1)
