"""Leaf scanning: faiss inverted lists that a router, not a quantizer, chooses among.

Shapes: N rows, M embedding size, Q queries, B leaves probed (beam), K results, R leaves a document.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rayhier.cluster.library import faiss, ivf_tools
from rayhier.storage.columns import Floats

Ints = npt.NDArray[np.int64]
ROWS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Copies:
    """Which rows belong together, where a document has several: in several leaves, or in several passages."""

    result_N: Ints
    """Number of the result a row belongs to; a search returns each result once, by its best row."""
    lower_NR: Ints | None = None
    """Leaves in which a row's document lies with a lower rank, -1 where there are fewer: [n, r - 1]."""


class LeafLists:
    """Vectors [n, m] in leaves. A document in r leaves is r rows."""

    def __init__(self, vectors_NM: Floats, leaf_N: Ints, n_leaves: int, copies: Copies | None = None) -> None:
        m = vectors_NM.shape[1]
        self.sizes: Ints = np.bincount(leaf_N, minlength=n_leaves).astype(np.int64)
        self.copies = copies
        self._again = (
            None if copies is None or copies.lower_NR is None else _Again.of(leaf_N, copies.lower_NR, n_leaves)
        )
        self._quantizer = faiss.IndexFlatIP(m)
        self._index = faiss.IndexIVFFlat(self._quantizer, m, n_leaves, faiss.METRIC_INNER_PRODUCT)
        self._index.is_trained = True
        # faiss holds no reference: what it reads needs a name that outlives the call.
        vectors = np.ascontiguousarray(vectors_NM, dtype=np.float32)
        leaves = np.ascontiguousarray(leaf_N, dtype=np.int64)
        ivf_tools.add_preassigned(self._index, vectors, leaves)

    @property
    def documents(self) -> int:
        """Rows of rank 0: distinct documents, passages where the corpus has them."""
        return int(self.sizes.sum()) - (0 if self._again is None else len(self._again.lower_AR))

    def search(self, query_QM: Floats, leaves_QB: Ints, k: int) -> tuple[Floats, Ints]:
        """Scores [q, k] and rows [q, k] of the best results in each query's leaves [q, β], each result once.

        Where the leaves hold fewer than k, the rest is row -1 and score -inf.
        """
        if self.copies is None:
            return self._best(query_QM, leaves_QB, k)
        fetch = k * (1 if self.copies.lower_NR is None else 1 + self.copies.lower_NR.shape[1])
        while True:
            scores, rows = once(*self._best(query_QM, leaves_QB, fetch), self.copies.result_N, k)
            if fetch >= len(self.copies.result_N) or not self._short(rows, leaves_QB, fetch):
                return scores, rows
            fetch *= 2

    def scanned(self, leaves_QB: Ints) -> Ints:
        """Rows scored for each query [q]."""
        return np.asarray(self.sizes[leaves_QB].sum(axis=1))

    def visited(self, leaves_QB: Ints) -> Ints:
        """Distinct documents scored for each query [q]: counted, not estimated."""
        scanned = self.scanned(leaves_QB)
        return scanned if self._again is None else scanned - self._again.count(leaves_QB)

    def _best(self, query_QM: Floats, leaves_QB: Ints, k: int) -> tuple[Floats, Ints]:
        self._index.nprobe = leaves_QB.shape[1]
        queries = np.ascontiguousarray(query_QM, dtype=np.float32)
        leaves = np.ascontiguousarray(leaves_QB, dtype=np.int64)
        scores, rows = ivf_tools.search_preassigned(self._index, queries, k, leaves)
        scores[rows < 0] = -np.inf
        return scores, rows

    def _short(self, row_QK: Ints, leaves_QB: Ints, fetched: int) -> bool:
        """Whether a query has too few results although its leaves hold rows that were not fetched."""
        return bool(((row_QK[:, -1] < 0) & (self.scanned(leaves_QB) > fetched)).any())


def once(score_QF: Floats, row_QF: Ints, result_N: Ints, k: int) -> tuple[Floats, Ints]:
    """The best k of fetched rows [q, f], best first, each result by its first row alone."""
    result_QF = np.where(row_QF >= 0, result_N[row_QF], -1)
    order = np.argsort(result_QF, axis=1, kind="stable")
    ranked = np.take_along_axis(result_QF, order, axis=1)
    repeated = np.zeros_like(ranked, dtype=bool)
    repeated[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    dropped = np.empty_like(repeated)
    np.put_along_axis(dropped, order, repeated, axis=1)
    dropped |= row_QF < 0
    kept = np.argsort(dropped, axis=1, kind="stable")[:, :k]
    gone = np.take_along_axis(dropped, kept, axis=1)
    rows = np.where(gone, -1, np.take_along_axis(row_QF, kept, axis=1))
    scores = np.where(gone, -np.inf, np.take_along_axis(score_QF, kept, axis=1))
    return scores.astype(np.float32), rows


@dataclass(frozen=True)
class _Again:
    """Rows of rank above 0, by leaf: they are no new document where a leaf of lower rank is probed too."""

    begin_L: Ints
    """Where each leaf's rows begin in `lower_AR`, and their number last."""
    lower_AR: Ints

    @classmethod
    def of(cls, leaf_N: Ints, lower_NR: Ints, n_leaves: int) -> "_Again":
        rows = np.flatnonzero((lower_NR >= 0).any(axis=1))
        rows = rows[np.argsort(leaf_N[rows], kind="stable")]
        counts = np.bincount(leaf_N[rows], minlength=n_leaves)
        return cls(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), lower_NR[rows])

    def count(self, leaves_QB: Ints) -> Ints:
        """Rows of each query's leaves [q, β] whose document another of them holds at a lower rank."""
        per_query = (self.begin_L[leaves_QB + 1] - self.begin_L[leaves_QB]).sum(axis=1)
        parts = np.split(leaves_QB, np.flatnonzero(np.diff(np.cumsum(per_query) // ROWS_AT_ONCE)) + 1)
        return np.concatenate([self._count(part) for part in parts])

    def _count(self, leaves_QB: Ints) -> Ints:
        q, n_leaves = len(leaves_QB), len(self.begin_L) - 1
        # One more column stays False: it is where -1 points.
        probed = np.zeros((q, n_leaves + 1), dtype=bool)
        np.put_along_axis(probed, leaves_QB, values=True, axis=1)
        begin = self.begin_L[leaves_QB].reshape(-1)
        size = (self.begin_L[leaves_QB + 1].reshape(-1)) - begin
        query_A = np.repeat(np.repeat(np.arange(q), leaves_QB.shape[1]), size)
        row_A = np.arange(size.sum()) + np.repeat(begin - np.cumsum(size) + size, size)
        again = probed[query_A[:, None], self.lower_AR[row_A]].any(axis=1)
        return np.bincount(query_A[again], minlength=q).astype(np.int64)
