"""Inverted lists of faiss, one for each leaf of a file: the second form of the scan (`scan.py` is its definition).

The lists of all files lie behind one faiss index, so that a scan is one call, however many files there are. Rows are
numbered file after file, and in a file list after list. Rows that a filter leaves out are not scored or counted.

Shapes: N rows, M embedding size, L lists, Q queries, B leaves visited (beam), K results.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rayhier.arrays import Bools, Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.dataset.ranking import take
from rayhier.search.segment import codecs
from rayhier.search.segment.codebook import Codebook
from rayhier.search.segment.scan import ListedRows, RankedRows, scan
from rayhier.search.segment.threads import in_pool, in_threads, single_products, threads_for

FEWEST_A_THREAD, FEWEST_CODED_A_THREAD = 4, 16
"""Fewest queries that each of several threads scans; of codes more, since a thread reads a list once for all of its
queries."""
FEWEST_TOGETHER, FEWEST_SCORES = 16, {2: 2_000, 4: 700}
"""Fewest queries of a batch, and fewest scores for each visited list by the bytes of a stored number (docs/LOG.md). In
such a batch, a list's rows are compared with all of its queries in one product. faiss scans smaller batches."""
COUNTED = 4_000_000
"""Rows of documents' second leaves that are looked at together, about."""
OFFSET = (1 << 32) - 1
"""Bits of a faiss label that are the row's place in its list. The bits above are the list."""


@dataclass(frozen=True)
class FileLists:
    """Inverted lists of the rows of one file, a list for each of its leaves. Rows are numbered list after list."""

    index: Any
    """faiss's index of the lists."""
    leaf_L: Ints
    """Leaf [l] of each list, ascending."""
    size_L: Ints
    """Number of rows [l] of each list."""
    lower_N: Ints | None = None
    """First leaf [n] of a row's document if the row lies in the second leaf, else -1. None if all are -1."""
    _numbered_from: list[int] = field(default_factory=lambda: [0])

    @property
    def rows(self) -> int:
        return int(self.size_L.sum())

    @property
    def names_rows(self) -> bool:
        """True if a scan tells rows by the lists' ids: faiss's fast scan tells no places in lists."""
        return isinstance(self.index, faiss.IndexIVFFastScan)

    def number_from(self, begin: int) -> None:
        """Let the ids of lists that name rows begin with another number. These lists are in memory."""
        (before,) = self._numbered_from
        if begin == before or not self.names_rows:
            return
        for number in np.flatnonzero(self.size_L).tolist():
            ids = faiss.rev_swig_ptr(self.index.invlists.get_ids(number), int(self.size_L[number]))
            ids += begin - before
        self._numbered_from[:] = [begin]

    def vectors(self, rows: Ints) -> Floats:
        """Read the vectors [n, m] of rows; needs mapped lists without loss."""
        if not len(rows):
            return np.zeros((0, self.index.d), np.float32)
        window_XM, end_L, begin_L = self._windows
        list_N = end_L.searchsorted(rows, side="right")
        stored_NM = torch.from_numpy(window_XM[begin_L[list_N] + rows * self.index.d])
        return stored_NM.float().numpy()  # numpy takes twice as long for it

    @cached_property
    def _windows(self) -> tuple[npt.NDArray[Any], Ints, Ints]:
        """Return the mapped lists as overlapping vectors [x, m]: one vector begins at each number of the file.

        Only the vectors of rows are read. Second comes the first row [l] after each list. Third comes the place [l] of
        each list in the file, less the numbers of all rows before the list.
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


@dataclass(frozen=True)
class Chosen:
    """Rows of lists that a scan scores and counts."""

    size_L: Ints
    """Number of these rows in each list [l], and 0 at the end, for list -1."""
    mask_N: Bools | None = None
    """True for these rows [n]. None: all rows of lists that are searched."""
    selectors: Sequence[Any] = ()
    """faiss's objects that say which rows to score: one, or one a file."""
    second: tuple[Ints, Ints, Ints] | None = None
    """Rows in documents' second leaves, list after list: the begin [l + 1] and size [l + 1] of each list's part, and
    for each row the document's first leaf [a]. The last list is -1."""

    @cached_property
    def rows(self) -> int:
        return int(self.size_L.sum())


class LeafLists:
    """Rows in inverted lists, a list for each leaf of a file; a document in two leaves has two rows."""

    def __init__(
        self, files: Sequence[FileLists], leaves: range | None = None, codebook: Codebook | None = None
    ) -> None:
        """Put the lists of files, in the same codec, behind one index; `codebook` is that of their codes, if any.

        Of a range of `leaves`, lists of other leaves are never scanned or counted.
        """
        self._codebook, none_L = codebook, np.zeros(0, np.int64)
        leaf_L = np.concatenate([none_L, *(file.leaf_L for file in files)])
        held_L = np.concatenate([none_L, *(file.size_L for file in files)])
        self._first_F = np.cumsum([0, *(len(file.size_L) for file in files)])
        self._row_F = np.cumsum([0, *(file.rows for file in files)])
        self.leaves = range(int(leaf_L.max(initial=-1)) + 1) if leaves is None else leaves
        is_searched_L = (leaf_L >= self.leaves.start) & (leaf_L < self.leaves.stop)
        self._begin_L, self._size_L = np.cumsum(held_L) - held_L, np.where(is_searched_L, held_L, 0)
        self._list_LY = _lists_of(leaf_L, np.flatnonzero(is_searched_L))
        self._list_N = np.repeat(np.arange(len(held_L)), held_L)
        self.lower_N: Ints | None = None
        if any(file.lower_N is not None for file in files):
            none = (np.full(file.rows, -1) for file in files)
            lower = [gap if file.lower_N is None else file.lower_N for file, gap in zip(files, none, strict=True)]
            self.lower_N = np.concatenate(lower)
        self._index, self._numbered = _stacked(files, self._row_F)
        self._alone = codecs.for_one_query(self._index)
        self.all = Chosen(np.append(self._size_L, 0), second=self._second(self._size_L[self._list_N] > 0))

    def choose(self, mask_N: Bools) -> Chosen:
        """Choose the rows where `mask_N` [n] is True, to be scanned and counted alone."""
        size_L = np.bincount(self._list_N[mask_N], minlength=len(self._size_L)).astype(np.int64)
        size_L = np.where(self._size_L > 0, size_L, 0)
        cuts = [0, len(mask_N)] if self._numbered else self._row_F.tolist()
        selectors = [_selector(mask_N[begin:end]) for begin, end in pairwise(cuts)]
        second = self._second(mask_N & (self._size_L[self._list_N] > 0))
        return Chosen(np.append(size_L, 0), mask_N, selectors, second)

    def _second(self, mask_N: Bools) -> tuple[Ints, Ints, Ints] | None:
        if self.lower_N is None:
            return None
        row_A = np.flatnonzero((self.lower_N >= 0) & mask_N)
        size_L = np.bincount(self._list_N[row_A], minlength=len(self._size_L) + 1)
        return np.cumsum(size_L) - size_L, size_L, self.lower_N[row_A]

    def scan(self, query_QM: Floats, leaves_QB: Ints | None, k: int, chosen: Chosen | None = None) -> RankedRows:
        """Find the k best rows [q, k] of each query [q, m] in its leaves [q, β], as `scan.scan` does. None: in all.

        Leaf -1 means no leaf. A document may have two rows, if both of its leaves are the query's.
        """
        chosen, m = chosen or self.all, len(self._size_L)
        if leaves_QB is None:
            list_QB = np.tile(np.flatnonzero(self._size_L), (len(query_QM), 1))
        else:
            list_QB = self._lists(leaves_QB)
        if list_QB.shape[1] > m:  # faiss takes no more columns than lists: those that exist come first
            list_QB = take(list_QB, np.argsort(list_QB < 0, axis=1, kind="stable")[:, :m])
        if not k or not list_QB.shape[1]:
            return RankedRows.none(len(query_QM), k)
        if chosen.mask_N is not None:
            list_QB = np.where(chosen.size_L[list_QB] > 0, list_QB, -1)
        if self._pays_together(chosen, list_QB):
            return self._together(chosen, query_QM, list_QB, k)
        queries = np.ascontiguousarray(query_QM, np.float32)
        queries = queries if self._codebook is None else self._codebook.padded(queries)
        found = self._by_query(chosen, queries, list_QB, k)
        missing_QK = found.row_QT < 0
        if not missing_QK[:, -1].any():
            return found
        found = found.without(missing_QK)
        most_Q = np.minimum(k, chosen.size_L[list_QB].sum(axis=1))
        for query in np.flatnonzero((~missing_QK).sum(axis=1) < most_Q).tolist():
            self._add_forgotten(chosen, found.score_QT[query], found.row_QT[query], list_QB[query])
        return found

    def count(self, leaves_QB: Ints, chosen: Chosen | None = None) -> tuple[Ints, Ints]:
        """Count the distinct documents [q] and the rows [q] that are scored for each query in its leaves [q, β].

        A document counts in its first leaf only, if the query visits that leaf too, whether or not it lies here.
        """
        chosen, list_QB = chosen or self.all, self._lists(leaves_QB)
        scanned_Q = self.scanned(leaves_QB, chosen)
        if chosen.second is None:
            return scanned_Q, scanned_Q
        begin_L, size_L, lower_A = chosen.second
        rows_Q, again = size_L[list_QB].sum(axis=1), list[Ints]()
        cuts = [0, *(np.flatnonzero(np.diff(np.cumsum(rows_Q) // COUNTED)) + 1).tolist(), len(list_QB)]
        for some in (slice(*ends) for ends in pairwise(cuts)):
            list_X = list_QB[some].ravel()
            size_X = size_L[list_X]
            row_A = np.repeat(begin_L[list_X] - np.cumsum(size_X) + size_X, size_X)
            row_A += np.arange(len(row_A))
            query_A = np.repeat(np.arange(len(rows_Q[some])), rows_Q[some])
            is_again_A = self._visited(leaves_QB[some])[query_A, lower_A[row_A]]
            again.append(np.bincount(query_A[is_again_A], minlength=len(rows_Q[some])))
        return scanned_Q - np.concatenate(again), scanned_Q

    def scanned(self, leaves_QB: Ints, chosen: Chosen) -> Ints:
        """Count the rows [q] that are scored for each query in its leaves [q, β]."""
        return np.asarray(chosen.size_L[self._lists(leaves_QB)].sum(axis=1))

    def again(self, row_QK: Ints, leaves_QB: Ints) -> Bools:
        """Mark rows [q, k] in documents' second leaves whose first leaf the query scans here too."""
        if self.lower_N is None:
            return np.zeros(row_QK.shape, bool)
        here_QB = np.where((leaves_QB >= self.leaves.start) & (leaves_QB < self.leaves.stop), leaves_QB, -1)
        query_Q1 = np.arange(len(row_QK))[:, None]
        return np.asarray(self._visited(here_QB)[query_Q1, self.lower_N[row_QK]] & (row_QK >= 0))

    def _visited(self, leaves_QB: Ints) -> Bools:
        """Return a table [q, l + 1]: True for the leaves of each query. The last column, of leaf -1, stays False."""
        visited = np.zeros((len(leaves_QB), self._width), bool)
        visited[np.arange(len(leaves_QB))[:, None], np.minimum(leaves_QB, self._width - 1)] = True
        visited[:, -1] = False
        return visited

    @cached_property
    def _width(self) -> int:
        return 1 if self.lower_N is None else int(self.lower_N.max(initial=-1)) + 2

    def _lists(self, leaves_QB: Ints) -> Ints:
        """Return the lists of each query's leaves [q, β · files of a leaf]. -1 stands for none."""
        last = len(self._list_LY) - 1
        list_QBY = self._list_LY[np.minimum(leaves_QB, last)]
        return np.asarray(list_QBY.reshape(len(leaves_QB), list_QBY.shape[1] * list_QBY.shape[2]))

    def _pays_together(self, chosen: Chosen, list_QB: Ints) -> bool:
        if self._codebook is not None or len(list_QB) < FEWEST_TOGETHER:
            return False
        is_visited_L = np.zeros(len(chosen.size_L), bool)
        is_visited_L[list_QB] = True
        scores, read = (size_L[list_QB].sum() for size_L in (chosen.size_L, self.all.size_L))
        fewest = FEWEST_SCORES[self._index.code_size // self._index.d]
        return bool(scores >= max(fewest * is_visited_L[:-1].sum(), read / 4))

    def _together(self, chosen: Chosen, query_QM: Floats, list_QB: Ints, k: int) -> RankedRows:
        held_L = np.diff(np.append(self._begin_L, self._row_F[-1]))
        rows = ListedRows(held_L, lambda number: codecs.stored(self._index, number, 0, int(held_L[number])))

        def part(query_QM: Floats, list_QB: Ints) -> RankedRows:
            return scan(rows, query_QM, list_QB, k, chosen.mask_N)

        with single_products():
            return RankedRows.joined(
                in_pool(part, threads_for(len(query_QM), FEWEST_TOGETHER), query_QM, list_QB), axis=0
            )

    def _by_query(self, chosen: Chosen, query_QM: Floats, list_QB: Ints, k: int) -> RankedRows:
        """Find the best rows in each query's lists [q, β]; faiss reads them query by query."""
        list_QB = np.ascontiguousarray(list_QB, np.int64)
        if not chosen.selectors:
            index = self._alone if len(query_QM) == 1 else self._index
            score_QK, row_QK = _scan_in_threads(index, None, query_QM, list_QB, k, pairs=not self._numbered)
            if not self._numbered:
                row_QK = np.where(row_QK < 0, -1, self._begin_L[row_QK >> 32] + (row_QK & OFFSET))
            return RankedRows(score_QK, row_QK)
        if len(chosen.selectors) == 1:
            return RankedRows(*_scan_in_threads(self._index, chosen.selectors[0], query_QM, list_QB, k))
        # Of several files, faiss knows rows by their numbers in these: file by file.
        best = [RankedRows.none(len(query_QM), k)]
        for number, selector in enumerate(chosen.selectors):
            first, last = self._first_F[number : number + 2]
            own_QB = np.where((list_QB >= first) & (list_QB < last), list_QB, -1)
            if (own_QB >= 0).any():
                score_QK, row_QK = _scan_in_threads(self._index, selector, query_QM, own_QB, k)
                best.append(RankedRows(score_QK, np.where(row_QK < 0, -1, row_QK + self._row_F[number])))
        return RankedRows.joined(best).first(k)

    def _add_forgotten(self, chosen: Chosen, score_K: Floats, row_K: Ints, list_B: Ints) -> None:
        """Append the rows that faiss' fast scan of pq leaves out because their sums are the least of its 8 bits."""
        count = int((row_K >= 0).sum())
        row_H = np.concatenate(
            [np.arange(self._size_L[number]) + self._begin_L[number] for number in list_B[list_B >= 0].tolist()]
        )
        if chosen.mask_N is not None:
            row_H = row_H[chosen.mask_N[row_H]]
        forgotten = np.setdiff1d(row_H, row_K[:count])[: len(row_K) - count]
        row_K[count : count + len(forgotten)] = forgotten
        score_K[count : count + len(forgotten)] = score_K[count - 1] if count else 0


def _lists_of(leaf_L: Ints, list_A: Ints) -> Ints:
    """Return the lists [leaves + 1, y] of each leaf, padded with -1.

    A leaf has a list in each file that has its documents. The last row is that of leaf -1, which has no list. `list_A`
    [a] are the lists that are searched.
    """
    list_A = list_A[np.argsort(leaf_L[list_A], kind="stable")]
    leaf_A = leaf_L[list_A]
    place_A = np.arange(len(leaf_A)) - np.searchsorted(leaf_A, leaf_A)
    table = np.full((int(leaf_A.max(initial=-1)) + 2, int(place_A.max(initial=0)) + 1), -1)
    table[leaf_A, place_A] = list_A
    return table


def _selector(mask_N: Bools) -> Any:
    bits = np.packbits(mask_N, bitorder="little")
    selector: Any = faiss.IDSelectorBitmap(len(bits), faiss.swig_ptr(bits))
    selector.bits = bits  # faiss keeps no reference
    return selector


def _stacked(files: Sequence[FileLists], row_F: Ints) -> tuple[Any, bool]:
    """Put the lists of files behind one faiss index. Returns it, and True if its ids are rows of all files.

    Lists that are mapped have ids of their own files. Scans then ask faiss for a row's list and its place in it.
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
    index: Any, selector: Any, query_QM: Floats, list_QB: Ints, k: int, *, pairs: bool = False
) -> tuple[Floats, Ints]:
    """Scan with as many threads as faiss may use; faiss itself uses a single thread where lists are given."""
    is_coded = isinstance(index, faiss.IndexIVFFastScan)
    work, fewest = partial(_scan, index, selector, k, pairs), FEWEST_CODED_A_THREAD if is_coded else FEWEST_A_THREAD
    if is_coded and threads_for(len(query_QM), fewest) < 2 <= min(faiss.omp_get_max_threads(), len(query_QM)):
        # faiss would use its threads, and take longer
        return in_pool(work, 1, query_QM, list_QB)[0]
    parts = in_threads(work, fewest, query_QM, list_QB)
    if len(parts) == 1:
        return parts[0]
    scores, rows = zip(*parts, strict=True)
    return np.concatenate(scores), np.concatenate(rows)


def _scan(index: Any, selector: Any, k: int, pairs: bool, query_QM: Floats, list_QB: Ints) -> tuple[Floats, Ints]:
    """Scan each query's lists [q, β] with faiss. Returns scores and labels [q, k] of the best rows.

    A label is the row's id, or with `pairs` the row's list and its place in it.
    """
    score_QK, label_QK = np.empty((len(query_QM), k), np.float32), np.empty((len(query_QM), k), np.int64)
    unread_QB = np.zeros(list_QB.shape, np.float32)  # distances to centroids, which no codec here reads
    parameters = _parameters(list_QB.shape[1]) if selector is None else _parameters_of(selector, list_QB.shape[1])
    arrays = [faiss.swig_ptr(array) for array in (query_QM, list_QB, unread_QB, score_QK, label_QK)]
    query, lists, unread, scores, labels = arrays
    index.search_preassigned_c(len(query_QM), query, k, lists, unread, scores, labels, pairs, parameters)
    return score_QK, label_QK


def _parameters_of(selector: Any, probed: int) -> Any:
    library: Any = faiss  # its type hints lack these names
    return library.SearchParametersIVF(sel=selector, nprobe=probed)


_parameters = lru_cache(1_000)(partial(_parameters_of, None))
"""faiss's settings of a scan of so many lists, of all their rows: making them takes as long as scanning a list."""
