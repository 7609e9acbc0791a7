"""Inverted lists of faiss, one for each leaf of a file: rows are scored in the lists of the leaves a router chose.

The lists of all files lie behind one faiss index, so that a scan is one call, however many files there are. Rows are
numbered file after file, and in a file list after list. With a filter, faiss skips the rows that do not meet it, and
they are not counted.

Shapes: N rows, M embedding size, L lists, Q queries, B leaves probed (beam), K results, R leaves a document.
"""

import copy
import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from rayhier.arrays import Bools, Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.dataset.documents import Copies
from rayhier.dataset.ranking import once, take
from rayhier.search.segment import codecs, leaf_by_leaf
from rayhier.search.segment.codebook import Codebook
from rayhier.search.segment.threads import in_pool, in_threads, single_products, threads_for

FEWEST_A_THREAD, FEWEST_CODED_A_THREAD = 4, 16
"""Fewest queries that each of several threads scans; of codes more, since a thread reads a list once for all of its
queries."""
FEW = 32
"""Leaves of a file that are looked up first in all layers: nearly every layer has one of them."""
COUNTED = 4_000_000
"""Rows of documents' further leaves that are looked at together, about."""
OFFSET = (1 << 32) - 1
"""Bits of a faiss label that are the row's place in its list; the bits above are the list."""


@dataclass(frozen=True)
class FileLists:
    """Inverted lists of the rows of one file, a list for each of its leaves."""

    index: Any
    """faiss's index of the lists."""
    leaf_L: Ints
    """Leaf [l] of each list, ascending."""
    size_L: Ints
    """Number of rows [l] of each list."""
    copies: Copies | None = None
    """Numbers of the results that the rows belong to. None where every row is a result of its own."""
    list_N: Ints | None = None
    """List [n] of each row. None where rows are numbered list after list."""
    _numbered_from: list[int] = field(default_factory=lambda: [0])

    @classmethod
    def build(cls, vectors_NM: Floats, leaf_N: Ints, n_leaves: int, copies: Copies | None = None) -> Self:
        """Build lists in memory from vectors [n, m] without compression; `leaf_N` [n] is the leaf of each."""
        size_L = np.bincount(leaf_N, minlength=n_leaves).astype(np.int64)
        index = codecs.fill("flat", vectors_NM, leaf_N, n_leaves)
        return cls(index, np.arange(n_leaves), size_L, copies, leaf_N)

    @property
    def rows(self) -> int:
        return int(self.size_L.sum())

    @property
    def names_rows(self) -> bool:
        """True where a scan tells rows by the lists' ids: faiss's fast scan tells no places in lists."""
        return isinstance(self.index, faiss.IndexIVFFastScan)

    def number_from(self, begin: int) -> None:
        """Let the ids of lists that name rows begin with another number; these lists are in memory."""
        (before,) = self._numbered_from
        if begin == before or not self.names_rows:
            return
        for number in np.flatnonzero(self.size_L).tolist():
            ids = faiss.rev_swig_ptr(self.index.invlists.get_ids(number), int(self.size_L[number]))
            ids += begin - before
        self._numbered_from[:] = [begin]

    def vectors(self, rows: Ints) -> Floats:
        """Read the vectors [n, m] of rows; needs mapped lists without loss, and rows numbered list after list."""
        if not len(rows):
            return np.zeros((0, self.index.d), np.float32)
        window_XM, end_L, begin_L = self._windows
        list_N = end_L.searchsorted(rows, side="right")
        stored_NM = torch.from_numpy(window_XM[begin_L[list_N] + rows * self.index.d])
        return stored_NM.float().numpy()  # numpy takes twice as long for it

    @cached_property
    def _windows(self) -> tuple[npt.NDArray[Any], Ints, Ints]:
        """The mapped lists as vectors [x, m], one from each number of the file on; the first row after each list [l].

        Third comes the place [l] of each list, less the numbers of all rows before it. Only rows are read of the
        vectors, which overlap.
        """
        width, m = self.index.code_size, self.index.d
        address_L = np.array([int(self.index.invlists.get_codes(number)) for number in range(len(self.size_L))])
        held_L = self.size_L > 0
        first = int(address_L[held_L].min(initial=np.iinfo(np.int64).max))
        last = int((address_L + self.size_L * width)[held_L].max(initial=first))
        memory: Any = (ctypes.c_char * (last - first)).from_address(first)
        numbers_X: npt.NDArray[Any] = np.frombuffer(memory, f"f{width // m}")
        end_L = np.cumsum(self.size_L)
        begin_L = (address_L - first) // numbers_X.itemsize - (end_L - self.size_L) * m
        return np.lib.stride_tricks.sliding_window_view(numbers_X, m), end_L, begin_L


class LeafLists:
    """Rows in inverted lists, a list for each leaf of a file; a document in r leaves has r rows."""

    def __init__(
        self, files: Sequence[FileLists], leaves: range | None = None, codebook: Codebook | None = None
    ) -> None:
        """Put the lists of files, in the same codec, behind one index; `codebook` is that of their codes, if any.

        Of a range of `leaves`, lists of other leaves are never scanned or counted.
        """
        self._files, self._codebook = list(files), codebook
        self._first_F = np.cumsum([0, *(len(file.size_L) for file in files)])
        self._row_F = np.cumsum([0, *(file.rows for file in files)])
        held_L = np.concatenate([np.zeros(0, np.int64), *(file.size_L for file in files)])
        leaf_L = np.concatenate([np.zeros(0, np.int64), *(file.leaf_L for file in files)])
        in_range_L = np.ones(len(leaf_L), bool) if leaves is None else _among(leaf_L, leaves)
        self._leaves = leaves if leaves is not None else range(int(leaf_L.max(initial=-1)) + 1)
        self._begin_L, self._held_L = np.cumsum(held_L) - held_L, held_L
        self._scan_only(np.where(in_range_L, held_L, 0))
        self._layers = _layers(leaf_L, in_range_L, self._first_F)
        self.copies = _joined([file.copies for file in files], [file.rows for file in files])
        self._chosen: list[Chosen] | None = None
        self._mask_N: Bools | None = None
        self._index, self._numbered = _stacked(self._files, self._row_F)
        self._alone = codecs.for_one_query(self._index)

    @classmethod
    def build(cls, vectors_NM: Floats, leaf_N: Ints, n_leaves: int, copies: Copies | None = None) -> Self:
        """Build lists in memory from vectors [n, m] without compression; `leaf_N` [n] is the leaf of each."""
        return cls([FileLists.build(vectors_NM, leaf_N, n_leaves, copies)])

    def where(self, mask_N: Bools) -> "LeafLists":
        """Return lists of which only the rows where `mask_N` [n] is True are scanned and counted."""
        lists = copy.copy(self)
        lists.choose(mask_N)
        return lists

    def choose(self, mask_N: Bools) -> None:
        """Scan and count from now on only the rows where `mask_N` [n] is True."""
        self.__dict__.pop("_further", None)
        chosen = np.bincount(self._list_of_rows()[mask_N], minlength=len(self.sizes)).astype(np.int64)
        self._mask_N = mask_N
        self._scan_only(np.where(self.sizes > 0, chosen, 0))
        cuts = [0, len(mask_N)] if self._numbered else self._row_F.tolist()
        self._chosen = [Chosen(mask_N[begin:end]) for begin, end in pairwise(cuts)]

    @property
    def rows(self) -> int:
        return int(self._row_F[-1])

    @property
    def mask(self) -> Bools:
        """Mask [n], True for rows that are scanned."""
        return np.ones(self.rows, dtype=bool) if self._mask_N is None else self._mask_N

    def _scan_only(self, size_L: Ints) -> None:
        self.sizes = size_L
        """Number of rows in each list [l] that are scanned."""
        self.scanned = int(size_L.sum())
        """Number of rows that are scanned, of all lists."""
        self._size_or_0_L = np.append(size_L, 0)  # of list -1

    @property
    def documents(self) -> int:
        """Number of distinct documents that are scanned; of passages where documents are cut into them."""
        return self.scanned - (0 if self._further is None else len(self._further[1]))

    def scan(self, query_QM: Floats, leaves_QB: Ints, k: int) -> tuple[Floats, Ints]:
        """Return scores [q, k] and rows [q, k] of the best results in each query's leaves [q, β], each result once.

        Where the leaves hold fewer than k, the rest is row -1 and score -inf. Leaf -1 means no leaf.
        """
        list_QB = self._lists(leaves_QB)
        if self.copies is None:
            return self._best(query_QM, list_QB, k)
        fetch = k * (1 if self.copies.lower_NR is None else 1 + self.copies.lower_NR.shape[1])
        while True:
            scores, rows = once(*self._best(query_QM, list_QB, fetch), self.copies.result_N, k)
            if fetch >= len(self.copies.result_N) or not self._short(rows, list_QB, fetch):
                return scores, rows
            fetch *= 2

    def scan_rows(self, query_QM: Floats, leaves_QB: Ints, k: int) -> tuple[Floats, Ints]:
        """Return scores and rows [q, k] of the best rows in each query's leaves [q, β]; a result may have several."""
        return self._best(query_QM, self._lists(leaves_QB), k)

    def count(self, leaves_QB: Ints) -> tuple[Ints, Ints]:
        """Count the distinct documents [q] and the rows [q] that are scored for each query in its leaves [q, β].

        A document is not counted here where one of the query's leaves, before this one in the document's order of
        leaves, holds it too, whether or not that leaf's list is among these.
        """
        list_QB = self._lists(leaves_QB)
        scanned_Q, further = self._scanned(list_QB), self._further
        if further is None:
            return scanned_Q, scanned_Q
        begin_L, lower_AR = further
        size_QB = begin_L[list_QB + 1] - begin_L[list_QB]
        size_QB[list_QB < 0] = 0
        if size_QB.sum() <= COUNTED:
            return scanned_Q - self._repeats(begin_L, lower_AR, list_QB, size_QB, leaves_QB), scanned_Q
        cuts = np.flatnonzero(np.diff(np.cumsum(size_QB.sum(axis=1)) // COUNTED)) + 1
        parts = zip(*(np.split(array_QB, cuts) for array_QB in (list_QB, size_QB, leaves_QB)), strict=True)
        return scanned_Q - np.concatenate([self._repeats(begin_L, lower_AR, *part) for part in parts]), scanned_Q

    def _repeats(self, begin_L: Ints, lower_AR: Ints, list_QB: Ints, size_QB: Ints, leaves_QB: Ints) -> Ints:
        """Count the rows [q] of further leaves whose document lies in another leaf of the query, at a lower rank."""
        query_X, place_X = np.nonzero(size_QB)
        size_X = size_QB[query_X, place_X]
        row_A = np.repeat(begin_L[list_QB[query_X, place_X]] - np.cumsum(size_X) + size_X, size_X)
        row_A += np.arange(len(row_A))
        query_A, width, q = np.repeat(query_X, size_X), self._width, len(list_QB)
        lower_AR = lower_AR[row_A]
        again_A = self._probed(leaves_QB).ravel()[
            np.where(lower_AR < 0, width - 1, lower_AR) + width * query_A[:, None]
        ]
        return np.bincount(query_A[again_A.any(axis=1)], minlength=q)

    def again(self, row_QK: Ints, leaves_QB: Ints) -> Bools:
        """Mark rows [q, k] whose document has another row too that the query scans here, in a leaf of lower rank."""
        lower_NR = None if self.copies is None else self.copies.lower_NR
        if lower_NR is None:
            return np.zeros(row_QK.shape, bool)
        here_QB = np.where((leaves_QB >= self._leaves.start) & (leaves_QB < self._leaves.stop), leaves_QB, -1)
        lower_QKR, query_Q = lower_NR[row_QK], np.arange(len(row_QK))
        return np.asarray(self._probed(here_QB)[query_Q[:, None, None], lower_QKR].any(axis=2) & (row_QK >= 0))

    def _probed(self, leaves_QB: Ints) -> Bools:
        """Return a table [q, l + 1]: True for the leaves of each query; the last column, of leaf -1, stays False."""
        probed = np.zeros((len(leaves_QB), self._width), bool)
        probed[np.arange(len(leaves_QB))[:, None], np.minimum(leaves_QB, self._width - 1)] = True
        probed[:, -1] = False
        return probed

    @cached_property
    def _width(self) -> int:
        lower_NR = None if self.copies is None else self.copies.lower_NR
        return 1 if lower_NR is None else int(lower_NR.max(initial=-1)) + 2

    @cached_property
    def _further(self) -> tuple[Ints, Ints] | None:
        """Rows of documents' further leaves: where those of each list begin [l + 1], and their lower leaves [a, r]."""
        if self.copies is None or self.copies.lower_NR is None:
            return None
        lower_NR, list_N = self.copies.lower_NR, self._list_of_rows()
        row_A = np.flatnonzero((lower_NR >= 0).any(axis=1) & self.mask & (self.sizes > 0)[list_N])
        row_A = row_A[np.argsort(list_N[row_A], kind="stable")]
        counts_L = np.bincount(list_N[row_A], minlength=len(self.sizes))
        return np.concatenate([[0], np.cumsum(counts_L)]), lower_NR[row_A]

    def _list_of_rows(self) -> Ints:
        """Return the list [n] of each row."""
        named = self._files[0].list_N if len(self._files) == 1 else None
        return np.repeat(np.arange(len(self._held_L)), self._held_L) if named is None else named

    def _lists(self, leaves_QB: Ints) -> Ints:
        """Return the lists of each query's leaves [q, β · layers]; -1 where a layer of files has none."""
        if len(self._layers) == 1:
            return self._layers[0](leaves_QB)
        return np.concatenate([leaves_QB[:, :0], *(layer(leaves_QB) for layer in self._layers)], axis=1)

    def _scanned(self, list_QB: Ints) -> Ints:
        return np.asarray(self._size_or_0_L[list_QB].sum(axis=1))

    def _best(self, query_QM: Floats, list_QB: Ints, k: int) -> tuple[Floats, Ints]:
        if not len(self.sizes):
            return np.full((len(query_QM), k), -np.inf, np.float32), np.full((len(query_QM), k), -1)
        if list_QB.shape[1] > len(self.sizes):
            # faiss takes no more columns than lists: put the lists that exist first.
            order_QB = np.argsort(list_QB < 0, axis=1, kind="stable")[:, : len(self.sizes)]
            list_QB = take(list_QB, order_QB)
        lists = np.ascontiguousarray(list_QB, dtype=np.int64)
        book = self._codebook
        queries = np.ascontiguousarray(query_QM, np.float32) if book is None else book.padded(query_QM)
        first = lists.shape[1]
        if book is None and len(queries) >= leaf_by_leaf.FEWEST:
            first = self.query_by_query_first(lists, k)
        nearest = lists if first == lists.shape[1] else np.ascontiguousarray(lists[:, :first])
        score_QK, row_QK = self._query_by_query(queries, nearest, k)
        if first < lists.shape[1]:
            scan = partial(leaf_by_leaf.scan, self._lossless_rows)
            with single_products():
                threads = threads_for(len(queries), leaf_by_leaf.FEWEST)
                in_pool(scan, threads, queries, lists[:, first:], score_QK, row_QK)
        if (row_QK[:, -1] < 0).any():
            missing_QK = row_QK < 0
            score_QK[missing_QK] = -np.inf
            most_Q = np.minimum(k, self._scanned(lists))
            for query in np.flatnonzero((~missing_QK).sum(axis=1) < most_Q).tolist():
                self._add_forgotten(score_QK[query], row_QK[query], lists[query])
        return score_QK, row_QK

    def query_by_query_first(self, list_QB: Ints, k: int) -> int:
        """Return how many of each query's lists [q, β] are scanned query by query; the others are leaf by leaf."""
        a_thread = -(-len(list_QB) // threads_for(len(list_QB), leaf_by_leaf.FEWEST))
        return leaf_by_leaf.first_lists(self._lossless_rows, self.sizes, list_QB[:a_thread], k)

    @property
    def _lossless_rows(self) -> leaf_by_leaf.StoredRows:
        size_L = np.where(self.sizes > 0, self._held_L, 0)
        return leaf_by_leaf.StoredRows(self._index, self._begin_L, size_L, self._row_of_place, self._mask_N)

    @cached_property
    def _row_of_place(self) -> Ints | None:
        """Number [n] of each row, list after list. None where rows are numbered so."""
        named = self._files[0].list_N if len(self._files) == 1 else None
        return None if named is None else np.argsort(named, kind="stable")

    def _query_by_query(self, query_QM: Floats, list_QB: Ints, k: int) -> tuple[Floats, Ints]:
        """Return scores and rows [q, k] of the best rows in each query's lists [q, β]; faiss reads them per query."""
        if self._chosen is not None:
            return self._best_chosen(self._chosen, query_QM, list_QB, k)
        index = self._alone if len(query_QM) == 1 else self._index
        score_QK, row_QK = _scan_in_threads(index, None, query_QM, list_QB, k, pairs=not self._numbered)
        if not self._numbered:
            row_QK = np.where(row_QK < 0, -1, self._begin_L[row_QK >> 32] + (row_QK & OFFSET))
        return score_QK, row_QK

    def _best_chosen(self, chosen: "Sequence[Chosen]", query_QM: Floats, list_QB: Ints, k: int) -> tuple[Floats, Ints]:
        """Scan the rows that are chosen: file by file where faiss knows rows by their numbers in their files."""
        list_QB = np.where(self.sizes[list_QB] == 0, -1, list_QB)  # -1 reads the last size, and stays
        if len(chosen) == 1:
            return _scan_in_threads(self._index, chosen[0], query_QM, list_QB, k)
        best = [(np.full((len(query_QM), k), -np.inf, np.float32), np.full((len(query_QM), k), -1))]
        for number, part in enumerate(chosen):
            first, last = self._first_F[number : number + 2]
            own_QB = np.where((list_QB >= first) & (list_QB < last), list_QB, -1)
            if (own_QB >= 0).any():
                score_QK, row_QK = _scan_in_threads(self._index, part, query_QM, own_QB, k)
                best.append((score_QK, np.where(row_QK < 0, -1, row_QK + self._row_F[number])))
        score_QF, row_QF = (np.concatenate(arrays, axis=1) for arrays in zip(*best, strict=True))
        order_QK = np.argsort(-score_QF, axis=1, kind="stable")[:, :k]
        return take(score_QF, order_QK), take(row_QF, order_QK)

    def _add_forgotten(self, score_K: Floats, row_K: Ints, list_B: Ints) -> None:
        """Append the rows that faiss' fast scan of pq leaves out because their sums are the least of its 8 bits."""
        count = int((row_K >= 0).sum())
        lists = self._index.invlists
        ids_of_lists = [
            faiss.rev_swig_ptr(lists.get_ids(leaf), int(self._held_L[leaf]))
            for leaf in list_B[list_B >= 0].tolist()
            if self._held_L[leaf]
        ]
        row_H = np.concatenate(ids_of_lists)
        if self._mask_N is not None:
            row_H = row_H[self._mask_N[row_H]]
        forgotten = np.setdiff1d(row_H, row_K[:count])[: len(row_K) - count]
        row_K[count : count + len(forgotten)] = forgotten
        score_K[count : count + len(forgotten)] = score_K[count - 1] if count else 0

    def _short(self, row_QK: Ints, list_QB: Ints, fetched: int) -> bool:
        few = row_QK[:, -1] < 0
        return bool(few.any() and (self._scanned(list_QB[few]) > fetched).any())


class Places:
    """Positions of leaves among some leaves, for instance those that one file holds."""

    def __init__(self, leaf_L: Ints, place_L: Ints | None = None) -> None:
        """Take the numbers of the leaves [l], in ascending order, and their positions [l], None: 0, 1, 2 and so on."""
        # The first and the last entry stay -1: leaves below and above the range are looked up there.
        self._before = int(leaf_L[0]) - 1 if len(leaf_L) else 0
        self._place = np.full(int(leaf_L[-1]) - self._before + 2 if len(leaf_L) else 1, -1)
        self._place[leaf_L - self._before] = np.arange(len(leaf_L)) if place_L is None else place_L

    def __call__(self, leaves: Ints) -> Ints:
        """Return each leaf's position among the leaves that the constructor took; -1 for any other leaf."""
        return self._place.take(leaves - self._before, mode="clip")


class Chosen:
    """Rows of inverted lists that a scan scores; others are skipped."""

    def __init__(self, mask_N: Bools) -> None:
        """Choose the rows where a mask [n] is True."""
        # faiss keeps no reference: the bits need a name that outlives its selector.
        self._bits = np.packbits(mask_N, bitorder="little")
        self.selector = faiss.IDSelectorBitmap(len(self._bits), faiss.swig_ptr(self._bits))
        """faiss's object that says which rows to score."""


def _among(leaf_L: Ints, leaves: range) -> Bools:
    return np.asarray((leaf_L >= leaves.start) & (leaf_L < leaves.stop))


def _layers(leaf_L: Ints, in_range_L: Bools, first_F: Ints) -> list[Places]:
    """Group files into layers, in each of which a leaf has one list at most; a layer finds a leaf's list.

    The files of a build are one layer; a file of documents that were added later has rows of any leaf.
    """
    layers: list[list[Ints]] = []
    taken_YL = np.zeros((len(first_F), int(leaf_L.max(initial=-1)) + 1), bool)
    for first, last in zip(first_F[:-1].tolist(), first_F[1:].tolist(), strict=True):
        list_A = first + np.flatnonzero(in_range_L[first:last])
        leaf_A = leaf_L[list_A]
        free_Y = np.flatnonzero(~taken_YL[: len(layers), leaf_A[:FEW]].any(axis=1))  # few layers are left to look at
        free_Y = free_Y[~taken_YL[free_Y[:, None], leaf_A].any(axis=1)]
        number = int(free_Y[0]) if len(free_Y) else len(layers)
        if number == len(layers):
            layers.append([])
        layers[number].append(list_A)
        taken_YL[number, leaf_A] = True
    places = []
    for parts in layers:
        list_A = np.concatenate(parts)
        list_A = list_A[np.argsort(leaf_L[list_A], kind="stable")]
        places.append(Places(leaf_L[list_A], list_A))
    return places


def _joined(parts: Sequence[Copies | None], rows: Sequence[int]) -> Copies | None:
    """Join which rows belong to one result, file after file; rows of different files never do."""
    if all(part is None for part in parts):
        return None
    if len(parts) == 1:
        return parts[0]
    results, begin = [], 0
    kind = np.int32 if sum(rows) <= np.iinfo(np.int32).max else np.int64
    for part, count in zip(parts, rows, strict=True):
        result_N = np.arange(count) if part is None else np.asarray(part.result_N)
        results.append((result_N + begin).astype(kind))
        begin += int(result_N.max(initial=-1)) + 1
    lower = [None if part is None else part.lower_NR for part in parts]
    width = max((lower_NR.shape[1] for lower_NR in lower if lower_NR is not None), default=0)
    if not width:
        return Copies(np.concatenate(results))
    lower_NR = np.full((sum(rows), width), -1, np.int32)
    for part_NR, end, count in zip(lower, np.cumsum(rows).tolist(), rows, strict=True):
        if part_NR is not None:
            lower_NR[end - count : end, : part_NR.shape[1]] = part_NR
    return Copies(np.concatenate(results), lower_NR)


def _stacked(files: Sequence[FileLists], row_F: Ints) -> tuple[Any, bool]:
    """Put the lists of files behind one faiss index. Returns it, and True where its ids are rows of all files.

    Lists that are mapped have ids of their own files; scans then ask faiss for a row's list and its place in it.
    """
    if len(files) == 1:
        return files[0].index, True
    if not files:
        return None, True
    for file, begin in zip(files, row_F.tolist(), strict=False):
        file.number_from(begin)
    library: Any = faiss  # its type hints lack these names
    lists = library.InvertedListsPtrVector()
    for file in files:
        lists.push_back(file.index.invlists)
    stack = library.VStackInvertedLists(len(files), lists.data())
    index = codecs.empty_like(files[0].index, sum(len(file.size_L) for file in files))
    index.replace_invlists(stack, False)
    index.ntotal = int(row_F[-1])
    index.referenced_objects = [*index.referenced_objects, stack, *(file.index for file in files)]
    return index, files[0].names_rows


def _scan_in_threads(
    index: Any, chosen: Chosen | None, query_QM: Floats, list_QB: Ints, k: int, *, pairs: bool = False
) -> tuple[Floats, Ints]:
    """Scan with as many threads as faiss may use; faiss itself uses a single thread where lists are given."""
    is_coded = isinstance(index, faiss.IndexIVFFastScan)
    work, fewest = partial(_scan, index, chosen, k, pairs), FEWEST_CODED_A_THREAD if is_coded else FEWEST_A_THREAD
    if is_coded and threads_for(len(query_QM), fewest) < 2 <= min(faiss.omp_get_max_threads(), len(query_QM)):
        # faiss would use its threads, and take longer
        return in_pool(work, 1, query_QM, list_QB)[0]
    parts = in_threads(work, fewest, query_QM, list_QB)
    if len(parts) == 1:
        return parts[0]
    scores, rows = zip(*parts, strict=True)
    return np.concatenate(scores), np.concatenate(rows)


def _scan(
    index: Any, chosen: Chosen | None, k: int, pairs: bool, query_QM: Floats, list_QB: Ints
) -> tuple[Floats, Ints]:
    """Scan each query's lists [q, β] with faiss. Returns scores and labels [q, k] of the best rows.

    A label is the row's id, or with `pairs` the row's list and its place in it.
    """
    score_QK, label_QK = np.empty((len(query_QM), k), np.float32), np.empty((len(query_QM), k), np.int64)
    unread_QB = np.zeros(list_QB.shape, np.float32)  # distances to centroids, which no codec here reads
    parameters = _parameters(list_QB.shape[1]) if chosen is None else _parameters_of(chosen, list_QB.shape[1])
    arrays = [faiss.swig_ptr(array) for array in (query_QM, list_QB, unread_QB, score_QK, label_QK)]
    query, lists, unread, scores, labels = arrays
    index.search_preassigned_c(len(query_QM), query, k, lists, unread, scores, labels, pairs, parameters)
    return score_QK, label_QK


def _parameters_of(chosen: Chosen | None, probed: int) -> Any:
    library: Any = faiss  # its type hints lack these names
    return library.SearchParametersIVF(sel=None if chosen is None else chosen.selector, nprobe=probed)


_parameters = lru_cache(1_000)(partial(_parameters_of, None))
"""faiss's settings of a scan of so many lists, of all their rows: making them takes as long as scanning a list."""
