"""A leaf map searched where it lies: a file of it is opened when a query first needs one of its leaves.

Shapes: Q queries, M embedding size, B leaves probed (beam), K results, S shards, T rows taken up as hits.
"""

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from rayhier.search import codecs
from rayhier.search.answer import Hit, Partial, best, hit
from rayhier.search.lists import Ints, Places, at
from rayhier.search.mapped import MappedShard
from rayhier.spec.search import Codec
from rayhier.storage.columns import Floats
from rayhier.storage.leaf_map import LeafMap, Shard


@dataclass(frozen=True)
class Rows:
    """The best rows of every query over all shards, best first; shard -1, score -inf where there are fewer."""

    score_QT: Floats
    shard_QT: Ints
    row_QT: Ints
    visited_Q: Ints
    scanned_Q: Ints


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
        rows, taken = self.rows(query_QM, leaves_QB, k), k
        found_Q = (rows.row_QT >= 0).sum(axis=1).tolist()
        found = self._hits(rows, taken)
        # A result may lie in several shards.
        while any(len(hits) < k and rest > taken for hits, rest in zip(found, found_Q, strict=True)):
            taken *= 2
            found = self._hits(rows, taken)
        counts = zip(rows.visited_Q.tolist(), rows.scanned_Q.tolist(), strict=True)
        return [Partial(hits[:k], *cost) for hits, cost in zip(found, counts, strict=True)]

    def rows(self, query_QM: Floats, leaves_QB: Ints, k: int) -> Rows:
        """At least the best k rows of each query in each shard with some of its leaves; a result once in each."""
        q = len(query_QM)
        own_QB = np.where((leaves_QB >= self.leaves.start) & (leaves_QB < self.leaves.stop), leaves_QB, -1)
        visited_Q, scanned_Q = np.zeros(q, dtype=np.int64), np.zeros(q, dtype=np.int64)
        parts: list[tuple[Any, Any, Any]] = []
        fetch = k * max(1, codecs.AGAIN[self.codec])
        for number, (lazy, place) in enumerate(zip(self._shards, self._place, strict=True)):
            asked = np.flatnonzero((place(own_QB) >= 0).any(axis=1))
            if not len(asked):
                continue
            whole, lists = len(asked) == q, lazy.shard.lists
            if not len(lists.sizes):  # all that it held was removed
                continue
            query, leaves = (query_QM, own_QB) if whole else (query_QM[asked], own_QB[asked])
            score, row, visited, scanned = lists.answer(query, leaves, fetch, leaves_QB if whole else leaves_QB[asked])
            visited_Q[asked] += visited
            scanned_Q[asked] += scanned
            parts.append((_spread(score, asked, q, -np.inf), _spread(row, asked, q, -1), np.full((q, fetch), number)))
        if not parts:
            nothing = np.full((q, k), -1)
            return Rows(np.full((q, k), -np.inf, np.float32), nothing, nothing, visited_Q, scanned_Q)
        found = (np.concatenate(one, axis=1) for one in zip(*parts, strict=True))
        score_QT, row_QT, shard_QT = found if len(parts) == 1 else _sorted(*found)
        if codecs.AGAIN[self.codec]:
            shard_QF, row_QF = shard_QT[:, :fetch], row_QT[:, :fetch]
            score_QT, row_QT, shard_QT = _sorted(self._exact(query_QM, shard_QF, row_QF), row_QF, shard_QF)
        return Rows(score_QT, np.where(row_QT < 0, -1, shard_QT), row_QT, visited_Q, scanned_Q)

    def _exact(self, query_QM: Floats, shard_QF: Ints, row_QF: Ints) -> Floats:
        """Scores [q, f] of rows by their stored vectors; -inf where there is no row."""
        score_QF = np.full(row_QF.shape, -np.inf, dtype=np.float32)
        for number in np.unique(shard_QF[row_QF >= 0]).tolist():
            query_A, place_A = np.nonzero((shard_QF == number) & (row_QF >= 0))
            rows = row_QF[query_A, place_A]
            score_QF[query_A, place_A] = self._shards[number].shard.scores(query_QM[query_A], rows)
        return score_QF

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


def _sorted(score_QT: Floats, row_QT: Ints, shard_QT: Ints) -> tuple[Floats, Ints, Ints]:
    """All three with the best scores of every query first."""
    order_QT = np.argsort(-score_QT, axis=1, kind="stable")
    return at(score_QT, order_QT), at(row_QT, order_QT), at(shard_QT, order_QT)


def _spread(value_AK: np.ndarray, asked: Ints, q: int, rest: float) -> np.ndarray:
    """Rows of some queries among all, the others `rest`."""
    if len(asked) == q:
        return value_AK
    every = np.full((q, value_AK.shape[1]), rest, dtype=value_AK.dtype)
    every[asked] = value_AK
    return every
