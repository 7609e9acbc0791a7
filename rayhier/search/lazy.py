"""A leaf map searched where it lies: a file of it is opened when a query first needs one of its leaves.

Shapes: Q queries, M embedding size, B leaves probed (beam), K results, S shards, T rows taken up as hits.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rayhier.search import codecs
from rayhier.search.answer import Hit, Partial, best, hit
from rayhier.search.lists import Ints, Places, at, repeated
from rayhier.search.mapped import MappedShard
from rayhier.spec.search import Codec
from rayhier.storage.columns import Floats
from rayhier.storage.leaf_map import LeafMap, Shard

HELD = 6
"""Rows of a query, in those that are wanted, that are held before the worst are let go."""


@dataclass(frozen=True)
class Rows:
    """The best rows of every query over all shards, best first; shard -1, score -inf where there are fewer."""

    score_QT: Floats
    shard_QT: Ints
    row_QT: Ints
    visited_Q: Ints
    scanned_Q: Ints
    whole_Q: npt.NDArray[np.bool_]
    """Whether there are no more rows of other results."""


class LazyMap:
    """One version of a leaf map: all of it, or a range of leaves."""

    def __init__(self, leaf_map: LeafMap, codec: Codec | None = None, leaves: range | None = None) -> None:
        """Lists held as a codec has them; as the vectors are stored, where none is named."""
        manifest = leaf_map.manifest
        self.leaf_map = leaf_map
        self.codec: Codec = codec or ("fp16" if manifest.vectors == "float16" else "flat")
        self.leaves = range(len(manifest.counts)) if leaves is None else leaves
        self._shards = [_Lazy(leaf_map, shard, self.codec) for shard in manifest.shards]
        held = [np.array([leaf for leaf in shard.leaves if leaf in self.leaves], np.int64) for shard in manifest.shards]
        self._place = [Places(leaves) for leaves in held]
        self._needed = [len(leaves) > 0 for leaves in held]

    def open(self) -> None:
        """Every file now; InputError where one is not as it was published."""
        for lazy, needed in zip(self._shards, self._needed, strict=True):
            if needed:
                _ = lazy.shard.lists

    def search(self, query_QM: Floats, leaves_QB: Ints, k: int) -> list[Partial]:
        """The best k results of each query [q, m] in its leaves [q, β], as far as they are ours."""
        fetch = k * max(1, codecs.AGAIN[self.codec])
        rows = self.rows(query_QM, leaves_QB, k, fetch)
        counts = zip(rows.visited_Q.tolist(), rows.scanned_Q.tolist(), strict=True)
        found, short_A = self._results(rows, k), np.flatnonzero(~rows.whole_Q)
        while len(short_A := short_A[[len(found[query]) < k for query in short_A]]):
            fetch *= 2  # many of their rows are of few results
            rows = self.rows(query_QM[short_A], leaves_QB[short_A], k, fetch)
            for query, hits in zip(short_A.tolist(), self._results(rows, k), strict=True):
                found[query] = hits
            short_A = short_A[~rows.whole_Q]
        return [Partial(hits, *cost) for hits, cost in zip(found, counts, strict=True)]

    def rows(self, query_QM: Floats, leaves_QB: Ints, k: int, fetch: int | None = None) -> Rows:
        """The best rows of each query in each shard with some of its leaves, at least k of them where there are.

        A result comes once in each shard. Where a codec loses something, the best `fetch` rows are scored again.
        """
        again = codecs.AGAIN[self.codec] > 0
        fetch = fetch or k * max(1, codecs.AGAIN[self.codec])
        q = len(query_QM)
        own_QB = np.where((leaves_QB >= self.leaves.start) & (leaves_QB < self.leaves.stop), leaves_QB, -1)
        visited_Q, scanned_Q = np.zeros(q, dtype=np.int64), np.zeros(q, dtype=np.int64)
        best = _Best(q, fetch)
        for number, (lazy, place) in enumerate(zip(self._shards, self._place, strict=True)):
            asked_A = np.flatnonzero((place(own_QB) >= 0).any(axis=1))
            if not len(asked_A):
                continue
            shard, lists = lazy.shard, lazy.shard.lists
            most = min(fetch, int(lists.sizes.sum()))
            if not most:  # all that it held was removed
                continue
            asks = slice(None) if len(asked_A) == q else asked_A  # what all ask is not copied
            query_AM, own_AB, every_AB = query_QM[asks], own_QB[asks], leaves_QB[asks]
            # Which passage of a document is the best, only the stored vectors say.
            each = again and shard.holds_passages
            score, row, visited, scanned = lists.answer(query_AM, own_AB, most, every_AB, distinct=not each)
            visited_Q[asked_A] += visited
            scanned_Q[asked_A] += scanned
            best.put(number, asked_A, score, row)
        found, whole_Q = best.found(), ~best.cut_Q
        if again:
            found = found.first(fetch)
            whole_Q = (found.row_QT >= 0).sum(axis=1) < fetch
            found = self._exact(query_QM, found)
        return Rows(found.score_QT, found.shard_QT, found.row_QT, visited_Q, scanned_Q, whole_Q)

    def _exact(self, query_QM: Floats, found: "_Found") -> "_Found":
        """Rows scored by their stored vectors, best first; of each result in a shard its best row alone."""
        score_QT, result_QT, before = np.full_like(found.score_QT, -np.inf), np.full_like(found.row_QT, -1), 0
        for number in np.unique(found.shard_QT[found.row_QT >= 0]).tolist():
            query_A, place_A = np.nonzero(found.shard_QT == number)
            row_A, shard = found.row_QT[query_A, place_A], self._shards[number].shard
            score_QT[query_A, place_A] = shard.scores(query_QM[query_A], row_A)
            copies = shard.lists.copies
            result_QT[query_A, place_A] = before + (row_A if copies is None else copies.result_N[row_A])
            before += int(shard.lists.sizes.sum())
        order_QT = np.argsort(-score_QT, axis=1, kind="stable")
        dropped_QT = repeated(at(result_QT, order_QT))
        exact = _Found(score_QT, found.shard_QT, found.row_QT).at(order_QT).without(dropped_QT)
        return exact.at(np.argsort(dropped_QT, axis=1, kind="stable"))

    def _results(self, rows: Rows, k: int) -> list[list[Hit]]:
        """The best k results of every query, or as many as the rows are of."""
        found_Q, taken = (rows.row_QT >= 0).sum(axis=1).tolist(), k
        found = self._hits(rows, taken)
        # A result may lie in several shards.
        while any(len(hits) < k and rest > taken for hits, rest in zip(found, found_Q, strict=True)):
            taken *= 2
            found = self._hits(rows, taken)
        return [hits[:k] for hits in found]

    def _hits(self, rows: Rows, count: int) -> list[list[Hit]]:
        """Hits of the first `count` rows of every query, each result once."""
        shard_QT, row_QT, score_QT = (one[:, :count] for one in (rows.shard_QT, rows.row_QT, rows.score_QT))
        taken: dict[tuple[int, int], dict[str, Any]] = {}
        for number in np.unique(shard_QT[shard_QT >= 0]).tolist():
            wanted = np.unique(row_QT[shard_QT == number])
            read = self._shards[number].shard.table.take(wanted).to_pylist()
            taken |= {(number, row): values for row, values in zip(wanted.tolist(), read, strict=True)}
        return [
            best(
                hit(taken[shard, row], score)
                for shard, row, score in zip(*(one.tolist() for one in own), strict=True)
                if shard >= 0
            )
            for own in zip(shard_QT, row_QT, score_QT, strict=True)
        ]


class _Lazy:
    """A shard that is opened once, by whoever needs it first."""

    def __init__(self, leaf_map: LeafMap, shard: Shard, codec: Codec) -> None:
        self._of = leaf_map, shard, codec
        self._lock = threading.Lock()
        self._shard: MappedShard | None = None

    @property
    def shard(self) -> MappedShard:
        if self._shard is None:
            with self._lock:
                self._shard = self._shard or MappedShard.open(*self._of)
        return self._shard


@dataclass(frozen=True)
class _Found:
    """Rows of every query [q, t], and where they lie; -inf and -1 where a query has fewer."""

    score_QT: Floats
    shard_QT: Ints
    row_QT: Ints

    @classmethod
    def none(cls, q: int, columns: int = 0) -> Self:
        shape = q, columns
        return cls(np.full(shape, -np.inf, dtype=np.float32), np.full(shape, -1), np.full(shape, -1))

    @classmethod
    def beside(cls, parts: "Sequence[_Found]") -> "_Found":
        """All of them, best first."""
        score_QT, shard_QT, row_QT = (
            np.concatenate([getattr(part, name) for part in parts], axis=1)
            for name in ("score_QT", "shard_QT", "row_QT")
        )
        return cls(score_QT, shard_QT, row_QT).at(np.argsort(-score_QT, axis=1, kind="stable"))

    def among(self, q: int, asked_A: Ints) -> "_Found":
        """Those of some queries among all q."""
        every = _Found.none(q, self.row_QT.shape[1])
        every.score_QT[asked_A], every.shard_QT[asked_A], every.row_QT[asked_A] = (
            self.score_QT,
            self.shard_QT,
            self.row_QT,
        )
        return every

    def at(self, place_QK: Ints) -> "_Found":
        return _Found(at(self.score_QT, place_QK), at(self.shard_QT, place_QK), at(self.row_QT, place_QK))

    def first(self, count: int) -> "_Found":
        return _Found(self.score_QT[:, :count], self.shard_QT[:, :count], self.row_QT[:, :count])

    def without(self, gone_QT: npt.NDArray[np.bool_]) -> "_Found":
        no_score = np.float32(-np.inf)
        return _Found(
            np.where(gone_QT, no_score, self.score_QT),
            np.where(gone_QT, -1, self.shard_QT),
            np.where(gone_QT, -1, self.row_QT),
        )


class _Best:
    """The best rows of every query over the shards they are put from, of which no more are held than are wanted."""

    def __init__(self, q: int, wanted: int) -> None:
        self._wanted, self._parts = wanted, [_Found.none(q)]
        self.cut_Q = np.zeros(q, dtype=bool)
        """Whether rows of a query were let go."""

    def put(self, shard: int, asked_A: Ints, score_AK: Floats, row_AK: Ints) -> None:
        """Rows [a, k] of some of the queries in a shard."""
        part = _Found(score_AK, np.where(row_AK < 0, -1, shard), row_AK)
        self._parts.append(part if len(asked_A) == len(self.cut_Q) else part.among(len(self.cut_Q), asked_A))
        if sum(held.row_QT.shape[1] for held in self._parts) > HELD * self._wanted:
            most = 2 * self._wanted  # a document in two leaves is two rows
            every = self.found()
            self.cut_Q |= (every.row_QT[:, most:] >= 0).any(axis=1)
            self._parts = [every.first(most)]

    def found(self) -> _Found:
        """Best first."""
        return _Found.beside(self._parts)
