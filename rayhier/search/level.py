"""Search a level of ReTreever's tree: all documents are compared by its few numbers, and the best are scored again.

Shapes: Q queries, K numbers of a level, L leaves, X numbers that score again, T rows on the shortlist.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayhier.arrays import Floats, Ints
from rayhier.dataset.ranking import Ranking, at, carried
from rayhier.search.comparing import Comparing, LevelQuery
from rayhier.search.flat import flat
from rayhier.search.scan import LeafScan, RankedRows
from rayhier.spec import InputError
from rayhier.storage import cache, columns
from rayhier.storage.cache import Lease
from rayhier.storage.leaf_map import LeafMap, Shard, Sidecar
from rayhier.storage.schemas import NODES

FORMAT = 1
MADE_AT_ONCE = 16_384
"""Documents that are represented at a time."""


class LevelPart:
    """Documents at a level: a flat index, their rows, and what scores them again."""

    def __init__(
        self, how: Comparing, level_NK: Floats, row_N: Ints, again: Callable[[Ints], Floats] | None = None
    ) -> None:
        """Index documents [n, k]; `row_N` are their rows, `again` reads numbers [a, x] of places among them."""
        self.how, self.row_N, self._again = how, row_N, again
        self._search = flat(level_NK, how.similarity) if len(row_N) else None

    def shortlist(self, query: LevelQuery, count: int) -> tuple[Floats, Ints, Floats | None]:
        """The best rows of each query by the level [q, t], best first, and the scores that rank them again [q, t]."""
        q = len(query.level_QK)
        if self._search is None:
            nothing = np.zeros((q, 0), np.float32)
            return nothing, np.zeros((q, 0), np.int64), None if query.again_QX is None else nothing
        score_QT, place_QT = self._search(query.level_QK, count)
        again_QT = None
        if query.again_QX is not None and self._again is not None:
            place_U, own_QT = np.unique(place_QT, return_inverse=True)
            again_QT = self._compare(query.again_QX, self._again(place_U), np.reshape(own_QT, place_QT.shape))
        return score_QT, self.row_N[place_QT], again_QT

    def _compare(self, query_QX: Floats, again_UX: Floats, own_QT: Ints) -> Floats:
        """Similarities [q, t] of queries and the documents of each."""
        found = np.empty(own_QT.shape, dtype=np.float32)
        total_variation = self.how.again == "level" and self.how.similarity == "tv"
        for number, (query_X, own_T) in enumerate(zip(query_QX, own_QT, strict=True)):
            again_TX = again_UX[own_T]
            found[number] = -0.5 * np.abs(again_TX - query_X).sum(axis=1) if total_variation else again_TX @ query_X
        return found


def stored_part(how: Comparing, stored_NL: npt.NDArray[Any], vector_NM: npt.NDArray[Any], row_N: Ints) -> LevelPart:
    """Index documents by their leaves' stored probabilities [n, l] and their vectors [n, m]."""
    return LevelPart(how, level_of_all(how, stored_NL), row_N, reader(how, stored_NL, vector_NM))


def level_of_all(how: Comparing, stored_NL: npt.NDArray[Any]) -> Floats:
    """What documents are compared by at the searched level [n, 2^h], computed in batches."""
    begins = range(0, len(stored_NL), MADE_AT_ONCE)
    parts = [how.level_of(stored_NL[begin : begin + MADE_AT_ONCE], how.level) for begin in begins]
    return np.concatenate(parts) if parts else np.zeros((0, 2**how.level), np.float32)


def reader(how: Comparing, stored_NL: Any, vector_NM: Any) -> Callable[[Ints], Floats] | None:
    """What reads the numbers that score some documents again: their vectors, or the deepest level of the tree."""
    match how.again:
        case "vectors":
            return lambda rows: np.asarray(vector_NM[rows], dtype=np.float32)
        case "level":
            depth = stored_NL.shape[1].bit_length() - 1
            return lambda rows: how.level_of(np.asarray(stored_NL[rows]), depth)
    return None


class LevelScan:
    """Searches a level over the segments of an index."""

    def __init__(self, how: Comparing, parts: Sequence[LevelPart], leaves: LeafScan, documents: int) -> None:
        """Search parts, one for each segment of `leaves`, which have their texts; they hold `documents` in all."""
        self.how, self._parts, self._leaves, self._documents = how, list(parts), leaves, documents

    @classmethod
    def mapped(cls, how: Comparing, leaf_map: LeafMap, leaves: LeafScan, cache_bytes: float) -> Self:
        """Search the shards of one version of a leaf map, in the range of leaves of a scan of it.

        InputError where a shard has no sidecar of the leaves' probabilities, or one that another model made.
        """
        parts = [_mapped(how, leaf_map, shard, leaves.leaves, cache_bytes) for shard in leaf_map.manifest.shards]
        return cls(how, parts, leaves, sum(len(part.row_N) for part in parts))

    def shortlist(self, query: LevelQuery, k: int) -> Ranking:
        """The best k results of each query by the level, ties by id, with the scores that rank them again."""
        q, fetch = len(query.level_QK), k
        while True:
            found = [part.shortlist(query, fetch) for part in self._parts]
            rows, again_QT = _beside(found, q)
            score_QK, row_QK, table, place_QT = self._leaves.results(rows, k)
            if fetch >= self._documents or ((row_QK >= 0).sum(axis=1) >= min(k, self._documents)).all():
                break
            fetch *= 2  # several rows belong to one result
        zero_Q = np.zeros(q, dtype=np.int64)
        if query.again_QX is None:
            return Ranking(score_QK, row_QK, table, zero_Q + self._documents, zero_Q, zero_Q)
        again_QK = carried(row_QK, place_QT, again_QT[:, : place_QT.shape[1]])
        return Ranking(score_QK, row_QK, table, zero_Q + self._documents, (row_QK >= 0).sum(axis=1), zero_Q, again_QK)

    def scan(self, query: LevelQuery, k: int, listed: int) -> Ranking:
        """The best k results of each query, of the `listed` best by the level."""
        return self.shortlist(query, listed).finished(k)


def _beside(found: Sequence[tuple[Floats, Ints, Floats | None]], q: int) -> tuple[RankedRows, Floats]:
    """Rows of all segments, best first, and the scores [q, t] that rank them again, zeros where there are none."""
    none = np.zeros((q, 0), dtype=np.float32)
    score_QT = np.concatenate([none, *(score for score, _, _ in found)], axis=1)
    row_QT = np.concatenate([none.astype(np.int64), *(row for _, row, _ in found)], axis=1)
    again_QT = np.concatenate(
        [none, *(np.zeros_like(score) if again is None else again for score, _, again in found)], axis=1
    )
    widths = [row.shape[1] for _, row, _ in found]
    segment_QT = np.broadcast_to(np.repeat(np.arange(len(found)), widths), row_QT.shape)
    order = np.argsort(-score_QT, axis=1, kind="stable")
    return RankedRows(score_QT, segment_QT, row_QT).at(order), at(again_QT, order)


def nodes_of(leaf_map: LeafMap, shard: Shard) -> Sidecar:
    """Sidecar of the leaves' probabilities; InputError where a shard has none, or one that another model made."""
    beside = shard.sidecars.get(NODES)
    if beside is None:
        raise InputError(
            f"{leaf_map.root / shard.file.name}: has no sidecar {NODES!r}, which levels of a tree are read from; "
            "allowed: an index built by a retreever router, or search.how leaves"
        )
    leaf_map.check_maker(beside)
    return beside


def _mapped(how: Comparing, leaf_map: LeafMap, shard: Shard, leaves: range, limit: float) -> LevelPart:
    """Map what a shard's rows in a range of leaves are compared by; made once, and cached by its files' checksums."""
    beside = nodes_of(leaf_map, shard)
    files = f"{shard.file.sha256} {beside.file.sha256} {beside.maker} {leaf_map.void(shard).tolist()}"
    made_of = f"level {FORMAT} {how} {files} {leaves}"
    lease = cache.made("levels", made_of, lambda place: _write(place, how, leaf_map, shard, leaves), limit)
    level_NK, row_N = (np.load(lease.folder / f"{name}.npy") for name in ("level", "rows"))
    path = lease.folder / "again.npy"
    again = reader(how, *2 * [np.load(path, mmap_mode="r")]) if path.exists() else None
    return MappedLevelPart(how, level_NK, row_N, again, lease)


class MappedLevelPart(LevelPart):
    """A part whose files stay on this machine while it lives."""

    def __init__(
        self, how: Comparing, level_NK: Floats, row_N: Ints, again: Callable[[Ints], Floats] | None, lease: Lease
    ) -> None:
        super().__init__(how, level_NK, row_N, again)
        self.lease = lease


def _write(folder: Path, how: Comparing, leaf_map: LeafMap, shard: Shard, leaves: range) -> None:
    names = ["leaf", "rank", NODES, *(["vector"] if how.again == "vectors" else [])]
    table = leaf_map.read(shard, names)
    leaf_N, rank_N = (table[name].to_numpy() for name in ("leaf", "rank"))
    row_N = np.flatnonzero((rank_N == 0) & (leaf_N >= leaves.start) & (leaf_N < leaves.stop))
    own = table.take(pa.array(row_N))
    stored_NL = columns.as_stored(own[NODES])
    np.save(folder / "rows.npy", row_N)
    np.save(folder / "level.npy", level_of_all(how, stored_NL))
    if how.again == "vectors":
        np.save(folder / "again.npy", columns.as_stored(own["vector"]))
    elif how.again == "level":
        np.save(folder / "again.npy", stored_NL)
