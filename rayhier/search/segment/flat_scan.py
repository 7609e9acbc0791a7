"""Search of all documents by a level of ReTreever's tree; the best are scored again by vectors or the deepest level.

Shapes: Q queries, K numbers of a level, L leaves, M embedding size, T rows considered.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import ID, Needs, by_name
from rayhier.search.segment.exact import FlatSearch, flat
from rayhier.search.segment.level_similarity import FlatQuery, LevelSimilarity, Shortlist, leading
from rayhier.search.segment.rows import RankedRows, lacks
from rayhier.search.segment.scan import LeafScan
from rayhier.spec import InputError
from rayhier.spec.filter import Filter
from rayhier.storage import cache, columns
from rayhier.storage.cache import Lease
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.schemas import NODES
from rayhier.storage.shard import Shard, Sidecar

FORMAT = 3
MADE_AT_ONCE = 16_384
"""Documents whose numbers at a level are computed at a time."""


class FlatPart:
    """A part of an index's documents, searched by their numbers at a level of the tree."""

    def __init__(
        self,
        similarity: LevelSimilarity,
        search: FlatSearch,
        row_N: Ints,
        vector_NM: npt.NDArray[Any],
        lease: Lease | None = None,
    ) -> None:
        """Take the function that compares queries with n documents, their vectors and ascending rows in a segment.

        `lease` keeps cached files on this machine while this object lives.
        """
        self.similarity, self.row_N, self._vector_NM, self._lease = similarity, row_N, vector_NM, lease
        self._search = search

    def best(self, query_QK: Floats, count: int, mask_N: Bools | None = None) -> tuple[Floats, Ints]:
        """Return similarities and rows [q, t] of the documents most similar to each query, at most `count`, in order.

        All documents are compared, or those where `mask_N` [n] is True.
        """
        most = count if mask_N is None else min(count, int(mask_N.sum()))
        score_QT, place_QT = self._search(query_QK, most, mask_N)
        return score_QT, np.where(place_QT < 0, -1, self.row_N[place_QT])

    def by_vectors(self, query_QM: Floats, row_QT: Ints) -> Floats:
        """Score rows [q, t] for queries [q, m] by the stored vectors: [q, t], -inf for row -1."""
        score_QT = np.full(row_QT.shape, -np.inf, dtype=np.float32)
        for query_M, row_T, score_T in zip(query_QM, row_QT, score_QT, strict=True):
            present_T = row_T >= 0
            if present_T.any():  # reading float16 is ten times as fast with torch as with numpy
                stored_TM = self._vector_NM[np.searchsorted(self.row_N, row_T[present_T])]
                score_T[present_T] = torch.from_numpy(stored_TM).float().numpy() @ query_M
        return score_QT

    def intact(self) -> bool:
        """Return True if the mapped files, where there are any, are unchanged since they were opened."""
        return self._lease is None or self._lease.intact()


def level_of_all(similarity: LevelSimilarity, stored_NL: npt.NDArray[Any]) -> Floats:
    """Compute documents' numbers at the searched level h, [n, 2^h], from their stored leaf probabilities [n, l]."""
    level_NK = np.empty((len(stored_NL), 2**similarity.level), np.float32)
    for begin in range(0, len(stored_NL), MADE_AT_ONCE):
        rows = slice(begin, begin + MADE_AT_ONCE)
        level_NK[rows] = similarity.level_of(stored_NL[rows], similarity.level)
    return level_NK


class FlatScan:
    """Searches all documents of an index by a level of ReTreever's tree."""

    def __init__(self, similarity: LevelSimilarity, parts: Sequence[FlatPart], leaves: LeafScan) -> None:
        self.similarity, self._leaves = similarity, leaves
        self._parts = {number: part for number, part in enumerate(parts) if len(part.row_N)}

    @classmethod
    def mapped(cls, similarity: LevelSimilarity, leaf_map: LeafMap, leaves: LeafScan, cache_bytes: float) -> Self:
        """Open the shards of a leaf map's version, in the range of leaves of `leaves`, for searches of all documents.

        Files kept on this machine stay within `cache_bytes`. InputError where a shard has no sidecar (a file beside it)
        of leaf probabilities, or one that another model made.
        """
        for shard in leaf_map.manifest.shards:
            nodes_of(leaf_map, shard)
        shards = [shard for shard in leaf_map.manifest.shards if any(leaf in leaves.leaves for leaf in shard.leaves)]
        parts = [_mapped(similarity, leaf_map, shard, leaves.leaves, cache_bytes) for shard in shards]
        return cls(similarity, parts, leaves)

    def intact(self) -> bool:
        """Return True if the files of all parts, and of the leaves, are unchanged since they were opened."""
        return self._leaves.intact() and all(part.intact() for part in self._parts.values())

    def shortlist(
        self, query: FlatQuery, results: int, where: Filter | None = None, *, needs: Needs = "texts"
    ) -> Shortlist:
        """List each query's best rows by the level, as many as hold `results` results, and score these rows again.

        Only documents that meet the filter `where` are compared. The shortlist's documents have the columns that
        `needs` names.
        """
        fetch, masks = results, self._masks(where)
        while True:
            rows, complete = self._best(query.query_QK, fetch, masks)
            if complete or not lacks(self._leaves.rows.best(rows, results).row_QT, results).any():
                break
            fetch *= 2  # several rows belong to one result
        ids, place_QT = self._leaves.rows.documents(rows.row_QT, needs="ids")
        order_QT, gone_QT = leading(rows.score_QT, place_QT, by_name(ids[ID]), results)
        listed = rows.take(order_QT).without(gone_QT)
        documents, place_QT = self._leaves.rows.documents(listed.row_QT, needs=needs)
        compared = sum(self._compared(number, mask_N) for number, mask_N in masks.items())
        return Shortlist(listed.score_QT, place_QT, documents, compared, self._by_vectors(query.vector_QM, listed))

    def _masks(self, where: Filter | None) -> Mapping[int, Bools | None]:
        """Return masks [n] of the documents to compare in each part, None for all; leaves out parts with none."""
        if where is None:
            return dict.fromkeys(self._parts)
        mask_N = self._leaves.mask(where)
        masks = {number: mask_N[self._begin(number) + part.row_N] for number, part in self._parts.items()}
        return {number: mask_N for number, mask_N in masks.items() if mask_N.any()}

    def _begin(self, number: int) -> int:
        return int(self._leaves.rows.begin_S[number])

    def _compared(self, number: int, mask_N: Bools | None) -> int:
        return len(self._parts[number].row_N) if mask_N is None else int(mask_N.sum())

    def _best(self, query_QK: Floats, fetch: int, masks: Mapping[int, Bools | None]) -> tuple[RankedRows, bool]:
        """Return each query's best rows, at least `fetch` where there are so many, and True if these are all rows.

        No better row of any segment is missing: rows below the last that was fetched of a longer segment are left out.
        """
        q = len(query_QK)
        parts, least_Q1, complete = [RankedRows.none(q)], np.full((q, 1), -np.inf), True
        for number, mask_N in masks.items():
            score_QT, row_QT = self._parts[number].best(query_QK, fetch, mask_N)
            parts.append(RankedRows(score_QT, np.where(row_QT < 0, -1, row_QT + self._begin(number))))
            if self._compared(number, mask_N) > fetch:
                least_Q1, complete = np.maximum(least_Q1, score_QT[:, -1:]), False
        rows = RankedRows.joined(parts)
        return rows.without(rows.score_QT < least_Q1), complete

    def _by_vectors(self, query_QM: Floats, rows: RankedRows) -> Floats:
        score_QT = np.full_like(rows.score_QT, -np.inf)
        begin_S = self._leaves.rows.begin_S
        for number, part in self._parts.items():
            in_part_QT = (rows.row_QT >= begin_S[number]) & (rows.row_QT < begin_S[number + 1])
            row_QT = np.where(in_part_QT, rows.row_QT - begin_S[number], -1)
            score_QT = np.maximum(score_QT, part.by_vectors(query_QM, row_QT))
        return score_QT


def nodes_of(leaf_map: LeafMap, shard: Shard) -> Sidecar:
    """Return a shard's sidecar (a file beside it) of leaf probabilities. InputError if none or another model's."""
    nodes = shard.sidecars.get(NODES)
    if nodes is None:
        raise InputError(
            f"{leaf_map.root / shard.file.name}: has no sidecar {NODES!r}, which levels of a tree are read from; "
            "allowed: an index built by a retreever router, or search.how leaves"
        )
    leaf_map.check_maker(nodes)
    return nodes


def _mapped(similarity: LevelSimilarity, leaf_map: LeafMap, shard: Shard, leaves: range, limit: float) -> FlatPart:
    nodes = nodes_of(leaf_map, shard)
    files = f"{shard.file.sha256} {nodes.file.sha256} {nodes.maker} {leaf_map.void(shard).tolist()}"
    made_of = f"level {FORMAT} {similarity} {files} {leaves}"
    lease = cache.get_or_build(
        "levels", made_of, lambda place: _write(place, similarity, leaf_map, shard, leaves), limit
    )
    mapped = {path.stem: np.load(path, mmap_mode="r") for path in lease.folder.glob("*.npy")}
    search = flat(mapped["level"], similarity.comparison)
    return FlatPart(similarity, search, mapped["rows"], mapped["vectors"], lease)


def _write(folder: Path, similarity: LevelSimilarity, leaf_map: LeafMap, shard: Shard, leaves: range) -> None:
    table = leaf_map.read(shard, ["leaf", "rank", NODES, "vector"])
    leaf_N, rank_N = (table[name].to_numpy() for name in ("leaf", "rank"))
    row_N = np.flatnonzero((rank_N == 0) & (leaf_N >= leaves.start) & (leaf_N < leaves.stop))
    rows = table.take(pa.array(row_N))
    np.save(folder / "rows.npy", row_N)
    np.save(folder / "level.npy", level_of_all(similarity, columns.as_stored(rows[NODES])))
    np.save(folder / "vectors.npy", columns.as_stored(rows["vector"]))
