"""A leaf map in memory, whole or some of its shards: what one process scans."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from rayhier.search.answer import Hit, Partial
from rayhier.search.lists import Copies, Ints, LeafLists
from rayhier.storage import columns
from rayhier.storage.columns import Floats
from rayhier.storage.leaf_map import LeafMap, Shard

OWN = ("doc_id", "parent", "leaf", "rank", "leaves", "log_prob", "vector", "title", "text")
"""Columns of every leaf map; the others are the corpus's fields."""


@dataclass(frozen=True)
class LoadedMap:
    """Rows of a leaf map: faiss lists, and everything else by row."""

    lists: LeafLists
    vector_NM: Floats
    leaf_N: Ints
    rank_N: Ints
    table: pa.Table
    """The other columns, row for row."""

    @classmethod
    def read(
        cls,
        leaf_map: LeafMap,
        shards: Sequence[Shard] | None = None,
        leaves: range | None = None,
        *,
        texts: bool = True,
    ) -> Self:
        """Load shards, all where none are named, of them a range of leaves; files are compared with their checksums."""
        unread = () if texts else ("title", "text")
        chosen = leaf_map.manifest.shards if shards is None else shards
        if leaves is not None:
            holding = [shard for shard in chosen if len(range(*shard.within(leaves)))]
            chosen = holding or chosen[:1]
        table = pa.concat_tables([leaf_map.read(shard, without=unread, leaves=leaves) for shard in chosen])
        leaf_N, rank_N = (table[name].to_numpy().astype(np.int64) for name in ("leaf", "rank"))
        vector_NM = columns.matrix(table["vector"])
        lists = LeafLists(vector_NM, leaf_N, len(leaf_map.manifest.counts), _copies(table, rank_N))
        return cls(lists, vector_NM, leaf_N, rank_N, table.drop_columns(["vector", "leaves"]))

    @property
    def result_ids(self) -> pa.ChunkedArray:
        """What a row is a result for: its document, the whole one where the corpus is cut into passages."""
        return self.table["parent" if "parent" in self.table.column_names else "doc_id"]

    @cached_property
    def first(self) -> Ints:
        """Rows of rank 0: every document once."""
        return np.flatnonzero(self.rank_N == 0)

    def search(self, query_QM: Floats, leaves_QB: Ints, k: int) -> list[Partial]:
        """The best k results of each query [q, m] in its leaves [q, β], as far as they lie here."""
        score_QK, row_QK = self.lists.search(query_QM, leaves_QB, k)
        counts = zip(self.lists.visited(leaves_QB).tolist(), self.lists.scanned(leaves_QB).tolist(), strict=True)
        return [
            Partial(self._hits(rows, scores), visited, scanned)
            for rows, scores, (visited, scanned) in zip(row_QK, score_QK, counts, strict=True)
        ]

    def _hits(self, rows: Ints, scores: Floats) -> list[Hit]:
        found = rows >= 0
        taken: list[dict[str, Any]] = self.table.take(rows[found]).to_pylist()
        return [
            Hit(
                row.get("parent", row["doc_id"]),
                float(score),
                row["leaf"],
                row.get("title", ""),
                row.get("text", ""),
                {name: value for name, value in row.items() if name not in OWN},
            )
            for row, score in zip(taken, scores[found], strict=True)
        ]


def _copies(table: pa.Table, rank_N: Ints) -> Copies | None:
    """Which rows are of one result; None where every row is its own."""
    several = bool((rank_N > 0).any())
    if not several and "parent" not in table.column_names:
        return None
    names = table["parent" if "parent" in table.column_names else "doc_id"].combine_chunks()
    result_N = names.dictionary_encode().indices.to_numpy().astype(np.int64)
    return Copies(result_N, _lower(table["leaves"], rank_N) if several else None)


def _lower(leaves: pa.ChunkedArray, rank_N: Ints) -> Ints:
    """The first `rank` leaves of each row's list, filled up with -1: [n, most rank]."""
    lists = leaves.combine_chunks()
    begin = lists.offsets.to_numpy()[:-1] - lists.offsets[0].as_py()
    flat = lists.flatten().to_numpy()
    place_R = np.arange(int(rank_N.max()))
    at = np.minimum(begin[:, None] + place_R, len(flat) - 1)
    return np.where(place_R < rank_N[:, None], flat[at], -1).astype(np.int64)
