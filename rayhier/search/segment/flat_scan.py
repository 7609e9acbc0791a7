"""Search of all documents by a level of ReTreever's tree. The best documents are rescored by vectors.

Shapes: Q queries, K numbers of a level, L leaves, M embedding size, N documents of a part, T rows considered.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import Needs, Ranking, by_name
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.search.segment.level_similarity import FlatQuery, LevelSimilarity, leading
from rayhier.search.segment.rows import lacks
from rayhier.search.segment.scan import ListedRows, RankedRows, scan
from rayhier.spec import InputError
from rayhier.spec.filter import Filter
from rayhier.storage import cache, columns
from rayhier.storage.cache import Lease
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.schemas import NODES
from rayhier.storage.shard import Shard, Sidecar

FORMAT = 4
MADE_AT_ONCE = 16_384
"""Number of documents whose vectors at a level of the tree are computed at a time."""


@dataclass(frozen=True)
class FlatPart:
    """The documents of a shard, once each. Mapped files hold each document's values at one level of the tree."""

    row_N: Ints
    """Row [n] of each document, among the rows of all shards."""
    rows: ListedRows
    """Numbers [n, k] of the documents at the level, in one list."""
    lease: Lease
    """Lease that keeps the files on this machine while this object lives."""

    @classmethod
    def of(cls, lease: Lease, begin: int) -> Self:
        """Take the files, and the number of the shard's first row among the rows of all shards."""
        # Mapped for writing, as torch wants it. Nothing writes, and the file would not change.
        level_NK = np.load(lease.folder / "level.npy", mmap_mode="c")
        return cls(np.load(lease.folder / "rows.npy") + begin, ListedRows.of(level_NK), lease)


class FlatScan:
    """Searches all documents of an index by a level of ReTreever's tree."""

    def __init__(self, similarity: LevelSimilarity, leaf_map: LeafMap, leaves: LeafScan, cache_bytes: float) -> None:
        """Open a version's shards in the leaves of `leaves`. InputError if a shard lacks this model's probabilities."""
        for shard in leaf_map.manifest.shards:
            nodes_of(leaf_map, shard)
        self.similarity, self._leaves = similarity, leaves
        shards = [shard for shard in leaf_map.manifest.shards if leaves.reads(shard)]
        leases = [_mapped(similarity, leaf_map, shard, leaves.leaves, cache_bytes) for shard in shards]
        begins = leaves.rows.begin_S.tolist()
        self._parts = [FlatPart.of(lease, begin) for lease, begin in zip(leases, begins, strict=False)]

    def intact(self) -> bool:
        """Return True if the files of all parts, and of the leaves, are unchanged since they were opened."""
        return self._leaves.intact() and all(part.lease.intact() for part in self._parts)

    def shortlist(
        self, query: FlatQuery, results: int, where: Filter | None = None, *, needs: Needs = "texts"
    ) -> Ranking:
        """List the rows of each query's best `results` results by the level that meet `where`. Rescores these rows."""
        rows, fetch = self._leaves.rows, results
        mask_N = None if where is None else self._leaves.mask(where)
        compared = sum(len(part.row_N) if mask_N is None else int(mask_N[part.row_N].sum()) for part in self._parts)
        while True:
            ranked = self._best(query.query_QK, fetch, mask_N)
            if fetch >= compared or not lacks(rows.best(ranked, results).row_QT, results).any():
                break
            fetch *= 2  # several rows belong to one result
        found, place_QT = rows.documents(ranked.row_QT, needs="ids")
        order_QT, gone_QT = leading(ranked.score_QT, place_QT, by_name(found), results)
        listed = ranked.take(order_QT).without(gone_QT)
        documents, place_QT = rows.documents(listed.row_QT, needs=needs)
        again_QT = self._leaves.products(query.vector_QM, listed.row_QT)
        compared_Q, listed_Q = np.full(len(place_QT), compared), (place_QT >= 0).sum(axis=1)
        none_Q = np.zeros_like(compared_Q)
        return Ranking(listed.score_QT, place_QT, documents, compared_Q, listed_Q, none_Q, base_QK=again_QT)

    def _best(self, query_QK: Floats, fetch: int, mask_N: Bools | None) -> RankedRows:
        """Return each query's best `fetch` rows by the level, or all rows if they are fewer."""
        found = [RankedRows.none(len(query_QK))]
        for part in self._parts:
            if not len(part.row_N):
                continue
            keep_N = None if mask_N is None else mask_N[part.row_N]
            most = min(fetch, len(part.row_N))
            ranked = scan(part.rows, query_QK, None, most, keep_N, self.similarity.comparison)
            found.append(RankedRows(ranked.score_QT, np.where(ranked.row_QT < 0, -1, part.row_N[ranked.row_QT])))
        return RankedRows.joined(found).first(fetch)


def nodes_of(leaf_map: LeafMap, shard: Shard) -> Sidecar:
    """Return a shard's file of leaf probabilities. InputError if the file is missing or from another model."""
    nodes = shard.sidecars.get(NODES)
    if nodes is None:
        raise InputError(
            f"{leaf_map.root / shard.file.name}: got no sidecar {NODES!r} for levels of a tree; allowed: an index of a "
            "retreever router, or search.how leaves"
        )
    leaf_map.check_maker(nodes)
    return nodes


def _mapped(similarity: LevelSimilarity, leaf_map: LeafMap, shard: Shard, leaves: range, limit: float) -> Lease:
    nodes = nodes_of(leaf_map, shard)
    files = f"{shard.file.sha256} {nodes.file.sha256} {nodes.maker} {leaf_map.void(shard).tolist()}"
    made_of = f"level {FORMAT} {similarity} {files} {leaves}"

    def write(folder: Path) -> None:
        table = leaf_map.read(shard, ["leaf", "rank", NODES])
        leaf_N, rank_N = (table[name].to_numpy() for name in ("leaf", "rank"))
        row_N = np.flatnonzero((rank_N == 0) & (leaf_N >= leaves.start) & (leaf_N < leaves.stop))
        np.save(folder / "rows.npy", row_N)
        stored_NL = columns.as_stored(table[NODES].take(pa.array(row_N)))
        np.save(folder / "level.npy", level_of_all(similarity, stored_NL))

    return cache.get_or_build("levels", made_of, write, limit)


def level_of_all(similarity: LevelSimilarity, stored_NL: npt.NDArray[Any]) -> Floats:
    """Compute documents' numbers at the searched level h, [n, 2^h], from their stored leaf probabilities [n, l]."""
    level_NK = np.empty((len(stored_NL), 2**similarity.level), np.float32)
    for begin in range(0, len(stored_NL), MADE_AT_ONCE):
        rows = slice(begin, begin + MADE_AT_ONCE)
        level_NK[rows] = similarity.level_of(stored_NL[rows], similarity.level)
    return level_NK
