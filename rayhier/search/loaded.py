"""A leaf map in memory, whole or some of its shards: what one process of an evaluation measures."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa

from rayhier.search.lists import Copies, Ints, LeafLists
from rayhier.storage import columns
from rayhier.storage.columns import Floats
from rayhier.storage.leaf_map import LeafMap, Shard


@dataclass(frozen=True)
class LoadedMap:
    """Rows of a leaf map: faiss lists, and everything else by row."""

    lists: LeafLists
    vector_NM: Floats
    rank_N: Ints
    table: pa.Table
    """The other columns, row for row."""

    @classmethod
    def read(
        cls,
        leaf_map: LeafMap,
        shards: Sequence[Shard] | None = None,
        *,
        texts: bool = True,
    ) -> Self:
        """Load shards, all where none are named; files are compared with their checksums."""
        unread = () if texts else ("title", "text")
        chosen = leaf_map.manifest.shards if shards is None else shards
        table = pa.concat_tables([leaf_map.read(shard, without=unread) for shard in chosen])
        leaf_N, rank_N = (table[name].to_numpy().astype(np.int64) for name in ("leaf", "rank"))
        vector_NM = columns.matrix(table["vector"])
        lists = LeafLists.build(vector_NM, leaf_N, len(leaf_map.manifest.counts), copies_of(table, rank_N))
        return cls(lists, vector_NM, rank_N, table.drop_columns(["vector", "leaves"]))

    @property
    def result_ids(self) -> pa.ChunkedArray:
        """What a row is a result for: its document, the whole one where the corpus is cut into passages."""
        return self.table["parent" if "parent" in self.table.column_names else "doc_id"]

    @cached_property
    def first(self) -> Ints:
        """Rows of rank 0: every document once."""
        return np.flatnonzero(self.rank_N == 0)


def copies_of(table: pa.Table, rank_N: Ints) -> Copies | None:
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
