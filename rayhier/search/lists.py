"""Inverted lists of faiss, one for each leaf: rows are scored in the lists of the leaves that a router chose.

With a filter, faiss skips the rows that do not meet it, and they are not counted.

Shapes: N rows, M embedding size, Q queries, B leaves probed (beam), K results, R leaves a document.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np

from rayhier.arrays import Bools, Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.dataset.documents import Copies
from rayhier.dataset.ranking import once, take
from rayhier.search import codecs

COUNTED = 4_000_000
"""Approximate number of rows that are counted at a time."""
FEWEST_A_THREAD = 4
"""Fewest queries for which another thread is used."""


class Places:
    """Positions of leaves among some leaves, for instance those that one file holds."""

    def __init__(self, leaf_L: Ints) -> None:
        """Take the numbers of the leaves [l], in ascending order."""
        # The first and the last entry stay -1: leaves below and above the range are looked up there.
        self._before = int(leaf_L[0]) - 1 if len(leaf_L) else 0
        self._place = np.full(int(leaf_L[-1]) - self._before + 2 if len(leaf_L) else 1, -1)
        self._place[leaf_L - self._before] = np.arange(len(leaf_L))

    def __call__(self, leaves: Ints) -> Ints:
        """Return each leaf's position among the leaves that the constructor took; -1 for any other leaf."""
        return self._place.take(leaves - self._before, mode="clip")


class LeafLists:
    """Rows in the inverted lists of a faiss index, a list for each leaf; a document in r leaves has r rows."""

    def __init__(
        self,
        index: Any,
        size_L: Ints,
        copies: Copies | None = None,
        list_N: Ints | None = None,
        place: Places | None = None,
        chosen: "Chosen | None" = None,
    ) -> None:
        """Wrap a faiss index, whose lists hold `size_L` [l] rows.

        List i holds leaf i, or the leaf whose position in `place` is i. Row n lies in list `list_N[n]`; where `list_N`
        is None, rows are in the order of lists. `copies` tell which rows belong to one result. All rows are scanned,
        or those that are `chosen`.
        """
        self.copies, self._chosen = copies, chosen
        self.index, self._place = index, place
        self._held_L, self._list_N = size_L, list_N
        self.sizes = size_L if chosen is None else chosen.sizes(self._list_of_rows(), len(size_L))
        """Number of rows in each list [l] that are scanned."""
        self._again = None
        if copies is not None and copies.lower_NR is not None:
            mask_N = None if chosen is None else chosen.mask_N
            self._again = _Again.of(self._list_of_rows(), copies.lower_NR, len(size_L), mask_N)

    @classmethod
    def build(cls, vectors_NM: Floats, leaf_N: Ints, n_leaves: int, copies: Copies | None = None) -> Self:
        """Build lists in memory from vectors [n, m] without compression; `leaf_N` [n] is the leaf of each."""
        size_L = np.bincount(leaf_N, minlength=n_leaves).astype(np.int64)
        return cls(codecs.fill("flat", vectors_NM, leaf_N, n_leaves), size_L, copies, leaf_N)

    def where(self, mask_N: Bools) -> "LeafLists":
        """Return lists of which only the rows where `mask_N` [n] is True are scanned and counted."""
        return LeafLists(self.index, self._held_L, self.copies, self._list_N, self._place, Chosen(mask_N))

    @property
    def rows(self) -> int:
        """Number of rows, scanned or not."""
        return int(self._held_L.sum())

    @property
    def mask(self) -> Bools:
        """Mask [n], True for rows that are scanned."""
        return np.ones(self.rows, dtype=bool) if self._chosen is None else self._chosen.mask_N

    @property
    def documents(self) -> int:
        """Number of distinct documents that are scanned; of passages where documents are cut into them."""
        return int(self.sizes.sum()) - (0 if self._again is None else len(self._again.lower_AR))

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

    def vectors(self, rows: Ints) -> Floats:
        """Read the vectors [n, m] of rows; needs a codec without loss (flat, fp16), and rows numbered list by list."""
        end_L = np.cumsum(self._held_L)
        list_N = np.searchsorted(end_L, rows, side="right")
        place_N, width = rows - (end_L - self._held_L)[list_N], self.index.code_size
        kind = np.float32 if width == 4 * self.index.d else np.float16
        vector_NM = np.empty((len(rows), self.index.d), np.float32)
        for leaf in np.unique(list_N).tolist():
            in_leaf_N = list_N == leaf
            codes = faiss.rev_swig_ptr(self.index.invlists.get_codes(leaf), int(self._held_L[leaf]) * width)
            vector_NM[in_leaf_N] = codes.view(kind).reshape(-1, self.index.d)[place_N[in_leaf_N]]
        return vector_NM

    def count(self, leaves_QB: Ints, elsewhere_QB: Ints) -> tuple[Ints, Ints]:
        """Count the distinct documents [q] and the rows [q] that are scored for each query in its leaves [q, β].

        `elsewhere_QB` [q, β] are all leaves of the query, also those of other lists: a document is not counted where
        one of them, before this one in the document's order of leaves, holds it too.
        """
        list_QB = self._lists(leaves_QB)
        scanned_Q = self._scanned(list_QB)
        return scanned_Q - (0 if self._again is None else self._again.count(list_QB, elsewhere_QB)), scanned_Q

    def _list_of_rows(self) -> Ints:
        """Return the list [n] of each row."""
        return np.repeat(np.arange(len(self._held_L)), self._held_L) if self._list_N is None else self._list_N

    def _lists(self, leaves_QB: Ints) -> Ints:
        """Return the list of each leaf; -1 where no list holds the leaf."""
        return leaves_QB if self._place is None else self._place(leaves_QB)

    def _scanned(self, list_QB: Ints) -> Ints:
        return np.asarray(np.where(list_QB < 0, 0, self.sizes[list_QB]).sum(axis=1))

    def _best(self, query_QM: Floats, list_QB: Ints, k: int) -> tuple[Floats, Ints]:
        if list_QB.shape[1] > len(self.sizes):
            # faiss takes no more columns than lists: put the lists that exist first.
            order_QB = np.argsort(list_QB < 0, axis=1, kind="stable")[:, : len(self.sizes)]
            list_QB = take(list_QB, order_QB)
        if self._chosen is not None:
            list_QB = np.where(self.sizes[list_QB] == 0, -1, list_QB)  # -1 reads the last size, and stays
        queries = np.ascontiguousarray(query_QM, dtype=np.float32)
        lists = np.ascontiguousarray(list_QB, dtype=np.int64)
        scores, rows = _in_threads(self.index, self._chosen, queries, lists, k)
        scores[rows < 0] = -np.inf
        for query in np.flatnonzero((rows >= 0).sum(axis=1) < np.minimum(k, self._scanned(lists))).tolist():
            self._add_forgotten(scores[query], rows[query], lists[query])
        return scores, rows

    def _add_forgotten(self, score_K: Floats, row_K: Ints, list_B: Ints) -> None:
        """Append the rows that faiss' fast scan of pq leaves out because their sums are the least of its 8 bits."""
        count = int((row_K >= 0).sum())
        lists, sizes = self.index.invlists, self._held_L
        ids_of_lists = [
            faiss.rev_swig_ptr(lists.get_ids(leaf), int(sizes[leaf])) for leaf in list_B[list_B >= 0].tolist()
        ]
        row_H = np.concatenate(ids_of_lists)
        if self._chosen is not None:
            row_H = row_H[self._chosen.mask_N[row_H]]
        forgotten = np.setdiff1d(row_H, row_K[:count])[: len(row_K) - count]
        row_K[count : count + len(forgotten)] = forgotten
        score_K[count : count + len(forgotten)] = score_K[count - 1] if count else 0

    def _short(self, row_QK: Ints, list_QB: Ints, fetched: int) -> bool:
        """Return True if a query has too few results although its leaves hold rows that were not fetched."""
        few = row_QK[:, -1] < 0
        return bool((self._scanned(list_QB[few]) > fetched).any())


class Chosen:
    """Rows of inverted lists that a scan scores; others are skipped."""

    def __init__(self, mask_N: Bools) -> None:
        """Choose the rows where a mask [n] is True."""
        self.mask_N = mask_N
        # faiss keeps no reference: the bits need a name that outlives its selector.
        self._bits = np.packbits(mask_N, bitorder="little")
        self.selector = faiss.IDSelectorBitmap(len(self._bits), faiss.swig_ptr(self._bits))
        """faiss's object that says which rows to score."""

    def sizes(self, list_N: Ints, lists: int) -> Ints:
        """Count the chosen rows of each list [l]; row n lies in list `list_N[n]`."""
        return np.bincount(list_N[self.mask_N], minlength=lists).astype(np.int64)


def _in_threads(index: Any, chosen: Chosen | None, query_QM: Floats, list_QB: Ints, k: int) -> tuple[Floats, Ints]:
    """Scan with as many threads as faiss may use; faiss itself uses a single thread where lists are given."""
    threads = min(faiss.omp_get_max_threads(), len(query_QM) // FEWEST_A_THREAD)
    if threads < 2:
        return _scan(index, chosen, query_QM, list_QB, k)
    parts = zip(np.array_split(query_QM, threads), np.array_split(list_QB, threads), strict=True)
    scans = [_pool(threads).submit(_scan, index, chosen, query, lists, k) for query, lists in parts]
    scores, rows = zip(*(scan.result() for scan in scans), strict=True)
    return np.concatenate(scores), np.concatenate(rows)


def _scan(index: Any, chosen: Chosen | None, query_QM: Floats, list_QB: Ints, k: int) -> tuple[Floats, Ints]:
    """Scan each query's lists [q, β] with faiss; returns scores and rows [q, k] of the best rows."""
    score_QK, row_QK = np.empty((len(query_QM), k), np.float32), np.empty((len(query_QM), k), np.int64)
    unread_QB = np.zeros(list_QB.shape, np.float32)  # distances to centroids, which no codec here reads
    selector = None if chosen is None else chosen.selector
    library: Any = faiss  # its type hints lack these names
    parameters = library.SearchParametersIVF(sel=selector, nprobe=list_QB.shape[1])
    arrays = [faiss.swig_ptr(array) for array in (query_QM, list_QB, unread_QB, score_QK, row_QK)]
    query, lists, unread, scores, rows = arrays
    index.search_preassigned_c(len(query_QM), query, k, lists, unread, scores, rows, False, parameters)
    return score_QK, row_QK


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    # A single OpenMP thread in each; OpenMP's limit is set per thread, so from inside the thread.
    return ThreadPoolExecutor(threads, "leaves", lambda: faiss.omp_set_num_threads(1))


@dataclass(frozen=True)
class _Again:
    """Documents' rows of rank above 0, by list: not counted where the document's leaf of lower rank is visited too."""

    begin_L: Ints
    """Begin of each list's rows in `lower_AR`; the last entry is the number of rows."""
    leaves: int
    """Number of distinct leaves of lower rank."""
    place: Places
    """Positions of the leaves of lower rank."""
    lower_AR: Ints
    """Positions of each row's leaves of lower rank; -1 where a row has fewer."""

    @classmethod
    def of(cls, list_N: Ints, lower_NR: Ints, n_lists: int, mask_N: Bools | None = None) -> "_Again":
        """Take the rows of rank above 0: of all rows, or of those where a mask [n] is True."""
        again_N = (lower_NR >= 0).any(axis=1)
        rows = np.flatnonzero(again_N if mask_N is None else again_N & mask_N)
        rows = rows[np.argsort(list_N[rows], kind="stable")]
        counts = np.bincount(list_N[rows], minlength=n_lists)
        leaf_U = np.unique(lower_NR[rows])
        place = Places(leaf_U[leaf_U >= 0])
        begin_L = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(begin_L, int((leaf_U >= 0).sum()), place, place(lower_NR[rows]))

    def count(self, list_QB: Ints, leaves_QB: Ints) -> Ints:
        """Count the rows [q] in each query's lists whose document another of its leaves holds at a lower rank."""
        size_QB = np.where(list_QB < 0, 0, self.begin_L[list_QB + 1] - self.begin_L[list_QB])
        if size_QB.sum() <= COUNTED:
            return self._count(list_QB, size_QB, leaves_QB)
        cuts = np.flatnonzero(np.diff(np.cumsum(size_QB.sum(axis=1)) // COUNTED)) + 1
        parts = (np.split(array_QB, cuts) for array_QB in (list_QB, size_QB, leaves_QB))
        return np.concatenate([self._count(*part) for part in zip(*parts, strict=True)])

    def _count(self, list_QB: Ints, size_QB: Ints, leaves_QB: Ints) -> Ints:
        q, width = len(leaves_QB), self.leaves + 1
        query_P, probe_P = np.nonzero(size_QB)
        if not len(query_P):
            return np.zeros(q, dtype=np.int64)
        # A flat table with a row a query. Position -1 points to the last column of the row before, which stays False.
        probed = np.zeros(q * width, dtype=bool)
        probed[self.place(leaves_QB) + width * np.arange(q)[:, None]] = True
        probed[width - 1 :: width] = False
        size_P, begin_P = size_QB[query_P, probe_P], self.begin_L[list_QB[query_P, probe_P]]
        end_P = np.cumsum(size_P)
        row_A = np.arange(end_P[-1]) + np.repeat(begin_P - end_P + size_P, size_P)
        first_A = np.repeat(width * query_P, size_P)
        again_A = probed[self.lower_AR[row_A] + first_A[:, None]].any(axis=1)
        return np.bincount(first_A[again_A] // width, minlength=q).astype(np.int64)
