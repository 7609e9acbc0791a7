"""Segments: rows of a leaf map that are scanned together, in mapped files.

A segment is a shard in the form that searches need: codes, vectors and columns in local files. The files are made once
from the shard's verified bytes. Checksum and removed rows of the shard name the cached files. A search reads only the
leaves that queries visit, so an index may be larger than memory.
"""

import contextlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import ID, OWN, Needs
from rayhier.dataset.words import word_hashes
from rayhier.search.native.reference import CodedFile, Codes, codes_of
from rayhier.search.segment.filter import matching
from rayhier.spec.filter import Filter
from rayhier.storage import cache, columns
from rayhier.storage.cache import Lease
from rayhier.storage.leaf_map import LeafMap, key_of
from rayhier.storage.shard import Shard

POPULATE = 22
"""Linux's number of the advice to map all pages of a file for reading now (MADV_POPULATE_READ)."""
ROWS, ABOUT = "rows.arrow", "about.json"
CODES = ("codes", "terms", "centers")
"""Names of a segment's files with the three arrays of `Codes`."""
FORMAT = 10
DOC_ID, VECTOR = "doc_id", "vector"
INNER = (DOC_ID, "parent", "rank", "leaves", "log_prob", VECTOR)
"""Columns of a leaf map that no result shows."""


@dataclass(frozen=True)
class Segment:
    """A segment in a folder of mapped files, which stay on this machine while this object lives."""

    lease: Lease

    @classmethod
    def open(cls, leaf_map: LeafMap, shard: Shard, limit: float = math.inf) -> Self:
        """Open a shard's rows at the leaf map's version. InputError if the file is not as the manifest lists it."""
        made_of = f"mapped {FORMAT} {shard.file.sha256} {leaf_map.void(shard).tolist()}"
        return cls(cache.get_or_build("lists", made_of, lambda place: _write(place, leaf_map.read(shard)), limit))

    @property
    def folder(self) -> Path:
        return self.lease.folder

    def intact(self) -> bool:
        """Return True if the mapped files are unchanged since they were opened."""
        return self.lease.intact()

    @property
    def count(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def table(self) -> pa.Table:
        return pa.ipc.open_file(pa.memory_map(str(self.folder / ROWS))).read_all()

    @cached_property
    def _shown(self) -> pa.Table:
        names = self.table.column_names
        key = key_of(names)
        shown = [key, *(name for name in names if name not in INNER)]
        return self.table.select(shown).rename_columns([ID, *shown[1:]])

    @cached_property
    def holds_passages(self) -> bool:
        return "parent" in self.table.column_names

    def file(self, leaves: range) -> CodedFile:
        """Return the rows for a scan of some leaves. Lists of other leaves get leaf -1."""
        leaf_L, size_L = self.lists
        leaf_L = np.where((leaf_L >= leaves.start) & (leaf_L < leaves.stop), leaf_L, -1)
        codes = Codes(*map(self._array, CODES))
        return CodedFile(self.stored, *codes, None, leaf_L, size_L, self._array("lower"))

    @cached_property
    def lists(self) -> tuple[Ints, Ints]:
        """Leaf and number of rows of each list [l]. The rows lie list after list."""
        about = json.loads((self.folder / ABOUT).read_bytes())
        leaf_L, size_L = (np.array(about[name], dtype=np.int64) for name in ("leaves", "sizes"))
        return leaf_L, size_L

    def mask(self, where: Filter) -> Bools:
        """Mark [n] the rows that meet the filter."""
        return matching(self.table, where)

    def take(self, rows: Ints, *, needs: Needs = "texts") -> pa.Table:
        """Read column `id` of some rows, and with `texts` their leaf, title, text and the corpus's declared fields.

        `vectors` adds `doc_id`, which differs between passages of a document, and the stored `vector`, as float32.
        """
        shown = (self._shown.select([ID]) if needs == "ids" else self._shown).take(pa.array(rows))
        if needs != "vectors":
            return shown
        vectors = columns.vector_column(self.vectors(rows), pa.float32())
        shown = shown.append_column(DOC_ID, self.table[DOC_ID].take(pa.array(rows)))
        return shown.append_column(VECTOR, pa.chunked_array([vectors]))

    def columns(self, names: Sequence[str]) -> list[Any] | None:
        """Return columns as arrays, for `native.columns`. None if a column lacks values or has over 2 GiB of text."""
        columns = [self._shown[name] for name in names]
        if any(column.num_chunks > 1 or column.null_count for column in columns):
            return None
        return [_as_arrays(column.chunk(0) if column.num_chunks else pa.array([], column.type)) for column in columns]

    @cached_property
    def declared(self) -> dict[str, pa.ChunkedArray]:
        return {name: self._shown[name] for name in self._shown.column_names if name not in OWN}

    def fields(self, row: int) -> dict[str, Any]:
        return {name: values[row].as_py() for name, values in self.declared.items()}

    def first_rows(self, leaves: range) -> Ints:
        """Return the rows [n], ascending, of documents whose first leaf is among `leaves`: one for each document."""
        leaf_N, rank_N = (self.table[name].to_numpy() for name in ("leaf", "rank"))
        return np.flatnonzero((rank_N == 0) & (leaf_N >= leaves.start) & (leaf_N < leaves.stop))

    def ids(self) -> pa.ChunkedArray:
        return self._shown[ID]

    def with_ids(self, hash_X: npt.NDArray[np.uint64]) -> Ints:
        """Return the first rows [r] of documents whose ids have some hashes. Other documents may share a hash."""
        hash_N, row_N = self._hashed_ids
        begin_X, end_X = (np.searchsorted(hash_N, hash_X, side) for side in ("left", "right"))
        there_X = begin_X < end_X
        places = [np.arange(begin, end) for begin, end in zip(begin_X[there_X], end_X[there_X], strict=True)]
        return np.asarray(row_N[np.concatenate(places)], np.int64) if places else np.empty(0, np.int64)

    @cached_property
    def _hashed_ids(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
        return self._array("id_hash"), self._array("id_row")

    @cached_property
    def stored(self) -> npt.NDArray[Any]:
        return np.asarray(self._array("vectors"))

    @cached_property
    def leaves(self) -> npt.NDArray[np.int32]:
        """First and last leaf [n, 2] of the rows' documents, mapped."""
        return np.asarray(self._array("leaves"))

    def warm(self) -> None:
        """Read all stored vectors into memory, to avoid page faults in queries. The system may drop vectors again."""
        if self.count:
            with contextlib.suppress(OSError):  # older kernels do not know the advice
                self._array("vectors").base.madvise(POPULATE)

    def vectors(self, rows: Ints) -> Floats:
        """Read the stored vectors [n, m] of some rows, as float32."""
        return np.asarray(self.stored[rows], np.float32)

    def _array(self, name: str) -> Any:
        """Map the array `name`. None if the segment has no such array."""
        path = self.folder / f"{name}.npy"
        return np.load(path, mmap_mode="r") if path.exists() else None


def _write(folder: Path, table: pa.Table) -> None:
    leaf_L, size_L = np.unique(table["leaf"].to_numpy(), return_counts=True)
    vector_NM, rank_N = columns.as_stored(table["vector"]), table["rank"].to_numpy()
    rows = table.drop_columns(["vector"])
    del table  # else a shard's vectors are in memory twice
    np.save(folder / "vectors.npy", vector_NM)
    coded: tuple[npt.NDArray[Any], ...] = codes_of(vector_NM)
    for name, array in zip(CODES, coded, strict=True):
        np.save(folder / f"{name}.npy", array)
    leaf_N2 = leaf_pairs(rows["leaves"].combine_chunks())
    np.save(folder / "leaves.npy", leaf_N2.astype(np.int32))
    if (rank_N > 0).any():
        np.save(folder / "lower.npy", np.where(rank_N > 0, leaf_N2[:, 0], -1))
    # One chunk, as taking rows is twenty times as fast as with a hundred.
    rows = rows.combine_chunks()
    with pa.OSFile(str(folder / ROWS), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    first_N = np.flatnonzero(rank_N == 0)
    hash_N = word_hashes(rows[key_of(rows.column_names)].take(pa.array(first_N)).to_pylist())
    order_N = np.argsort(hash_N)
    np.save(folder / "id_hash.npy", hash_N[order_N])
    np.save(folder / "id_row.npy", first_N[order_N].astype(np.int32))
    (folder / ABOUT).write_text(json.dumps({"leaves": leaf_L.tolist(), "sizes": size_L.tolist()}))


def _as_arrays(column: pa.Array) -> Any:
    if not pa.types.is_string(column.type):
        return column.to_numpy()
    _, begins, content = column.buffers()
    begin_N = np.frombuffer(begins or bytes(4), np.int32)[column.offset : column.offset + len(column) + 1]
    return begin_N, np.frombuffer(content or b"", np.uint8)


def leaf_pairs(leaves: pa.ListArray) -> Ints:
    """Return documents' leaves [n, 2] from the column `leaves`: a single leaf twice."""
    offset_N, values = leaves.offsets.to_numpy(), leaves.values.to_numpy()
    return np.stack([values[offset_N[:-1]], values[offset_N[1:] - 1]], axis=1).astype(np.int64)
