"""Segments: rows of a leaf map that are scanned together, as inverted lists and a table in mapped files.

A mapped segment is a shard of a leaf map in the form that a search needs: faiss lists and rows in local files. These
are made once from the shard's verified bytes, and cached by its checksum, the codec and the rows that later versions
removed. A search then reads only the leaves that a query visits, so an index may be larger than memory. Only the lists
of `pq` are read completely: an eighth of a byte for each dimension, and eight bytes for each row.
"""

import contextlib
import json
import math
import mmap
import threading
import warnings
import weakref
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from rayhier.arrays import Bools, Ints
from rayhier.cluster.library import faiss
from rayhier.dataset.ranking import ID, Needs
from rayhier.dataset.words import word_hashes
from rayhier.search.segment import codecs
from rayhier.search.segment.codebook import Codebook
from rayhier.search.segment.filter import matching
from rayhier.search.segment.lists import FileLists
from rayhier.spec.filter import Filter
from rayhier.spec.search import Codec
from rayhier.storage import cache, columns
from rayhier.storage.cache import Lease
from rayhier.storage.leaf_map import LeafMap, key_of
from rayhier.storage.shard import Shard

POPULATE = 22
"""Linux's number of the advice to map all pages of a file for reading now (MADV_POPULATE_READ)."""
LISTS, ROWS, ABOUT = "lists.faiss", "rows.arrow", "about.json"
FORMAT = 6
DOC_ID, VECTOR = "doc_id", "vector"
INNER = (DOC_ID, "parent", "rank", "leaves", "log_prob", VECTOR)
"""Columns of a leaf map that no result shows."""


_lists: weakref.WeakValueDictionary[tuple[object, int | None], FileLists] = weakref.WeakValueDictionary()
"""Lists in use, by the files that they were read from, and the number with which ids of lists in memory begin."""
_lock = threading.Lock()


@dataclass(frozen=True)
class Segment:
    """A segment in a folder of mapped files, which stay on this machine while this object lives."""

    lease: Lease

    @classmethod
    def open(
        cls,
        leaf_map: LeafMap,
        shard: Shard,
        codec: Codec,
        limit: float = math.inf,
        codebook: Codebook | None = None,
    ) -> Self:
        """Open a shard's rows at the leaf map's version. InputError if the file is not as the manifest lists it.

        `codebook` is needed for the codec `pq` alone. The segment's files may displace other cached files: all stay
        within `limit` bytes, except those that are mapped.
        """
        void_V = leaf_map.void(shard)
        coded = codec if codebook is None else f"{codec} {codebook.name}"
        made_of = f"mapped {FORMAT} {coded} {shard.file.sha256} {void_V.tolist()}"
        lease = cache.get_or_build(
            "lists", made_of, lambda place: _write(place, leaf_map.read(shard), codec, codebook), limit
        )
        return cls(lease)

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
        """All columns of the rows, without the vectors."""
        return pa.ipc.open_file(pa.memory_map(str(self.folder / ROWS))).read_all()

    @cached_property
    def _shown(self) -> pa.Table:
        names = self.table.column_names
        key = key_of(names)
        shown = [key, *(name for name in names if name not in INNER)]
        return self.table.select(shown).rename_columns([ID, *shown[1:]])

    @cached_property
    def holds_passages(self) -> bool:
        """True if several rows may belong to one result."""
        return "parent" in self.table.column_names

    @cached_property
    def lists(self) -> FileLists:
        """Inverted lists of the rows. Versions share those that are mapped."""
        return self._shared(None) if self._mapped is None else self._read_lists()

    def _read_lists(self) -> FileLists:
        about = json.loads((self.folder / ABOUT).read_bytes())
        index = faiss.read_index(str(self.folder / LISTS), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        leaf_L, size_L = (np.array(about[name], dtype=np.int64) for name in ("leaves", "sizes"))
        return FileLists(index, leaf_L, size_L, self._array("lower"))

    def lists_from(self, begin: int) -> FileLists:
        """Return these lists, whose ids, where they name rows, begin with a number.

        Those in memory are shared by versions in which the rows have the same numbers, as all have that were there
        before an addition.
        """
        if self._mapped is not None:
            self.__dict__["lists"] = self._shared(begin)
        return self.lists

    def _shared(self, begin: int | None) -> FileLists:
        key = self.lease.content, begin
        with _lock:
            lists = _lists.get(key)
            if lists is None:
                lists = self._read_lists()  # nobody has these yet
                if begin is not None:
                    lists.number_from(begin)
                _lists[key] = lists
            return lists

    def mask(self, where: Filter) -> Bools:
        """Return a mask [n] of the rows: True if a row meets the filter."""
        return matching(self.table, where)

    def take(self, rows: Ints, *, needs: Needs = "texts") -> pa.Table:
        """Read column `id` of some rows, and with `texts` their leaf, title, text and the corpus's declared fields.

        `vectors` adds to these `doc_id`, which tells passages of a document apart, and the stored `vector`, as float32.
        """
        shown = (self._shown.select([ID]) if needs == "ids" else self._shown).take(pa.array(rows))
        if needs != "vectors":
            return shown
        vectors = columns.vector_column(self.vectors(rows).numpy(), pa.float32())
        shown = shown.append_column(DOC_ID, self.table[DOC_ID].take(pa.array(rows)))
        return shown.append_column(VECTOR, pa.chunked_array([vectors]))

    def first_rows(self, leaves: range) -> Ints:
        """Return the rows [n], ascending, of documents whose first leaf is among `leaves`: one for each document."""
        leaf_N, rank_N = (self.table[name].to_numpy() for name in ("leaf", "rank"))
        return np.flatnonzero((rank_N == 0) & (leaf_N >= leaves.start) & (leaf_N < leaves.stop))

    def ids(self) -> pa.ChunkedArray:
        """Return the ids of all rows' results."""
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
    def matrix(self) -> torch.Tensor:
        """Stored vectors [n, m] of all rows, mapped. ValueError if the codec keeps them in the lists alone."""
        mapped = self._mapped
        if mapped is None:
            raise ValueError(f"matrix: got rows of {self.folder}, whose lists hold the vectors; allowed: of codec pq")
        with warnings.catch_warnings():  # torch warns of arrays that it may not write
            warnings.simplefilter("ignore")
            return torch.from_numpy(mapped)

    @cached_property
    def _mapped(self) -> Any:
        return self._array("vectors")

    def warm(self) -> None:
        """Read all stored vectors into memory, from where the system may drop them again.

        Without this, a query waits for a page fault at almost every row that it scores again.
        """
        if self._mapped is not None and len(self._mapped):
            with contextlib.suppress(OSError):  # older kernels do not know the advice
                self._mapped.base.madvise(POPULATE)

    def read_ahead(self, rows: Ints) -> None:
        """Have the system read the stored vectors of some rows [n], ascending, at the same time. Returns at once."""
        if self._mapped is None or not len(rows):
            return
        page, width = mmap.ALLOCATIONGRANULARITY, self._mapped.strides[0]
        first = (rows * width + self._mapped.offset % page) // page
        last = ((rows + 1) * width + self._mapped.offset % page - 1) // page
        begins = np.flatnonzero(np.append(True, first[1:] > last[:-1] + 1))
        ends = np.append(begins[1:], len(rows)) - 1
        with contextlib.suppress(OSError):
            for begin, end in zip(first[begins].tolist(), last[ends].tolist(), strict=True):
                self._mapped.base.madvise(mmap.MADV_WILLNEED, begin * page, (end + 1 - begin) * page)

    def vectors(self, rows: Ints) -> torch.Tensor:
        """Read the stored vectors [n, m] of some rows: from a file where the codec loses precision, else from lists."""
        if (self.folder / "vectors.npy").exists():
            return self.matrix.index_select(0, torch.from_numpy(rows)).float()
        return torch.from_numpy(self.lists.vectors(rows))

    def _array(self, name: str) -> Any:
        """Map the array of this name. None if the segment has none."""
        path = self.folder / f"{name}.npy"
        return np.load(path, mmap_mode="r") if path.exists() else None


def _write(folder: Path, table: pa.Table, codec: Codec, codebook: Codebook | None) -> None:
    leaf_L, list_N, size_L = np.unique(table["leaf"].to_numpy(), return_inverse=True, return_counts=True)
    vector_NM, rank_N = columns.as_stored(table["vector"]), table["rank"].to_numpy()
    rows = table.drop_columns(["vector"])
    if codec == "pq":
        np.save(folder / "vectors.npy", vector_NM)
    del table  # it would hold a shard's vectors in memory a second time
    codecs.write(codecs.fill(codec, vector_NM, list_N, len(leaf_L), codebook), folder / LISTS)
    if (rank_N > 0).any():
        first_leaf_N = leaf_pairs(rows["leaves"].combine_chunks())[:, 0]
        np.save(folder / "lower.npy", np.where(rank_N > 0, first_leaf_N, -1))
    # One chunk: taking rows is twenty times as fast as with a hundred.
    rows = rows.combine_chunks()
    with pa.OSFile(str(folder / ROWS), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    first_N = np.flatnonzero(rank_N == 0)
    hash_N = word_hashes(rows[key_of(rows.column_names)].take(pa.array(first_N)).to_pylist())
    order_N = np.argsort(hash_N)
    np.save(folder / "id_hash.npy", hash_N[order_N])
    np.save(folder / "id_row.npy", first_N[order_N].astype(np.int32))
    (folder / ABOUT).write_text(json.dumps({"leaves": leaf_L.tolist(), "sizes": size_L.tolist()}))


def leaf_pairs(leaves: pa.ListArray) -> Ints:
    """Return documents' leaves [n, 2] from the column `leaves`: the first twice if there is no second."""
    offset_N, values = leaves.offsets.to_numpy(), leaves.values.to_numpy()
    return np.stack([values[offset_N[:-1]], values[offset_N[1:] - 1]], axis=1).astype(np.int64)
