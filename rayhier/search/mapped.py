"""One file of a leaf map, as a search needs it: faiss lists and rows in files of this machine, mapped into memory.

They are made once, from the file's verified bytes, and kept by its checksum, its codec and the rows that later versions
removed from it: whoever opens the same again reads only what a query touches, and so may search what no memory holds.
The lists of `pq` alone are read whole; they are the smallest but one.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch

from rayhier.cluster.library import faiss
from rayhier.search import codecs
from rayhier.search.lists import Copies, Ints, LeafLists, Places
from rayhier.search.loaded import copies_of
from rayhier.spec.search import Codec
from rayhier.storage import cache, columns
from rayhier.storage.columns import Floats
from rayhier.storage.leaf_map import LeafMap, Shard

LISTS, ROWS, ABOUT = "lists.faiss", "rows.arrow", "about.json"
FORMAT = 2


@dataclass(frozen=True)
class MappedShard:
    """A folder of mapped files."""

    folder: Path

    @classmethod
    def open(cls, leaf_map: LeafMap, shard: Shard, codec: Codec) -> Self:
        """Its rows that count at the map's version; InputError where the file is not the listed one."""
        void_V = leaf_map.void(shard)
        made_of = f"mapped {FORMAT} {codec} {shard.file.sha256} {void_V.tolist()}"
        folder = cache.made("lists", made_of, lambda place: _write(place, leaf_map.read(shard), codec))
        return cls(folder)

    @cached_property
    def table(self) -> pa.Table:
        """Every column of its rows but their vectors."""
        return pa.ipc.open_file(pa.memory_map(str(self.folder / ROWS))).read_all()

    @cached_property
    def holds_passages(self) -> bool:
        """Whether several of its vectors may be of one result."""
        return "parent" in self.table.column_names

    @cached_property
    def lists(self) -> LeafLists:
        """Its leaves."""
        about = json.loads((self.folder / ABOUT).read_bytes())
        index = faiss.read_index(str(self.folder / LISTS), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        result_N, lower_NR = self._array("result"), self._array("lower")
        copies = None if result_N is None else Copies(result_N, lower_NR)
        leaf_L, size_L = (np.array(about[name], dtype=np.int64) for name in ("leaves", "sizes"))
        return LeafLists(index, size_L, copies, place=Places(leaf_L))

    def scores(self, query_AM: Floats, row_A: Ints) -> Floats:
        """Inner products [a] of queries [a, m] and rows [a], by the stored vectors."""
        # Reading float16 is ten times as fast with torch as with numpy.
        vector_AM = torch.from_numpy(self._vectors[row_A]).float()
        return np.asarray(torch.einsum("am,am->a", torch.from_numpy(query_AM), vector_AM).numpy())

    @cached_property
    def _vectors(self) -> Any:
        return self._array("vectors")

    def _array(self, name: str) -> Any:
        """Mapped; None where there was no need of it."""
        path = self.folder / f"{name}.npy"
        return np.load(path, mmap_mode="r") if path.exists() else None


def _write(folder: Path, table: pa.Table, codec: Codec) -> None:
    leaf_L, list_N, size_L = np.unique(table["leaf"].to_numpy(), return_inverse=True, return_counts=True)
    vector_NM, rank_N = columns.as_stored(table["vector"]), table["rank"].to_numpy()
    rows = table.drop_columns(["vector"])
    if codecs.AGAIN[codec]:
        np.save(folder / "vectors.npy", vector_NM)
    del table  # with which a shard's vectors would lie in memory twice
    codecs.write(codecs.fill(codec, vector_NM, list_N, len(leaf_L)), folder / LISTS)
    copies = copies_of(rows, rank_N.astype(np.int64))
    if copies is not None:
        np.save(folder / "result.npy", copies.result_N)
    if copies is not None and copies.lower_NR is not None:
        np.save(folder / "lower.npy", copies.lower_NR)
    # In one piece: rows are taken from it twenty times as fast as from a hundred.
    rows = rows.drop_columns(["leaves"]).combine_chunks()
    with pa.OSFile(str(folder / ROWS), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    (folder / ABOUT).write_text(json.dumps({"leaves": leaf_L.tolist(), "sizes": size_L.tolist()}))
