"""Search of all documents by four-bit codes of their vectors, without leaves: `search.how: codes`.

Codes find the best documents, whose stored vectors are then compared with the query. Documents that a filter chooses
are compared by their stored vectors at once: faiss skips no codes.

Shapes: N rows, D documents (rows of their first leaf), M embedding size, Q queries, T rows considered, K results.
"""

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.dataset.ranking import Ranking
from rayhier.search import codecs
from rayhier.search.codebook import FEWEST, Codebook, codebook_of
from rayhier.search.rows import RankedRows, Rows, lacks
from rayhier.search.scan import LeafScan
from rayhier.search.segment import MappedSegment, MemorySegment
from rayhier.spec.filter import Filter
from rayhier.spec.search import SearchSpec
from rayhier.storage import cache
from rayhier.storage.cache import Lease
from rayhier.storage.leaf_map import LeafMap

AT_ONCE = 16_384
"""Vectors that are read at a time."""
FORMAT = 1
CODES, DOCUMENTS = "codes.faiss", "documents.npy"


class CodeScan:
    """Searches all documents of an index, or of a range of its leaves, by codes of their vectors."""

    def __init__(
        self,
        leaves: LeafScan,
        row_D: Ints,
        index: Any,
        codebook: Codebook | None = None,
        listed: Callable[[int], int] | None = None,
        leases: tuple[Lease, ...] = (),
    ) -> None:
        """Take the documents' rows in `leaves`, ascending, faiss's index of their codes, and the codebook of these.

        Few documents have no codes: both are None.

        `listed` tells the number of rows to score again for a number of results, None: as many as by the spec's
        defaults. `leases` keep cached files on this machine while this object lives.
        """
        self._leaves, self._row_D, self._index, self._codebook, self._leases = leaves, row_D, index, codebook, leases
        self._listed = listed or SearchSpec().shortlisted

    @classmethod
    def mapped(cls, leaf_map: LeafMap, leaves: LeafScan, listed: Callable[[int], int], cache_bytes: float) -> Self:
        """Open the documents whose first leaf is among those of `leaves`; their codes are made once, and cached."""
        codebook, rows, parts, leases = codebook_of(leaf_map, cache_bytes), [np.zeros(0, np.int64)], [], []
        for begin, segment in zip(leaves.rows.begin_S.tolist(), leaves.segments, strict=False):
            if not isinstance(segment, MappedSegment):
                raise TypeError("codes: got rows in memory; allowed: of mapped segments")
            if codebook is None:
                rows.append(begin + segment.first_rows(leaves.leaves))
                continue
            lease = _coded(segment, codebook, leaves.leaves, cache_bytes)
            rows.append(begin + np.load(lease.folder / DOCUMENTS))
            parts.append(faiss.read_index(str(lease.folder / CODES)))
            leases.append(lease)
        index = reduce(_merged, parts) if parts else None
        return cls(leaves, np.concatenate(rows), index, codebook, listed, tuple(leases))

    @classmethod
    def memory(cls, segment: MemorySegment) -> Self:
        """Code the rows of a segment in memory, of which each is a document of its own."""
        vector_NM = segment.vector_NM
        codebook = Codebook.train(vector_NM, rotate=True) if len(vector_NM) >= FEWEST else None
        index = None if codebook is None else codebook.flat(vector_NM)
        return cls(LeafScan.memory(segment), np.arange(len(vector_NM)), index, codebook)

    @property
    def documents(self) -> int:
        """Number of documents that are compared."""
        return len(self._row_D)

    def intact(self) -> bool:
        """Return True if the mapped files are unchanged since they were opened."""
        return self._leaves.intact() and all(lease.intact() for lease in self._leases)

    def scan(
        self,
        query_QM: Floats,
        k: int,
        where: Filter | None = None,
        *,
        with_vectors: bool = False,
        listed: int | None = None,
    ) -> Ranking:
        """Rank the best k results of each query [q, m] among all documents, or those that meet a filter.

        The best `listed` rows by codes are scored again; None: as many as the constructor's function tells. With
        `with_vectors`, the ranking's documents have the columns `doc_id` and `vector` too.
        """
        rows, fetch = self._leaves.rows, listed or self._listed(k)
        row_D = self._row_D if where is None else self._row_D[self._leaves.mask(where)[self._row_D]]
        while True:
            ranked, scored = self._best(rows, query_QM, row_D, fetch, coded=where is None)
            score_QK, row_QK, documents, _ = rows.results(ranked, k, with_vectors=with_vectors)
            if fetch >= len(row_D) or not lacks(row_QK, k).any():
                break
            fetch *= 2  # many rows belong to few results
        zero_Q = np.zeros(len(query_QM), dtype=np.int64)
        return Ranking(score_QK, row_QK, documents, zero_Q + len(row_D), zero_Q + scored, zero_Q)

    def _best(self, rows: Rows, query_QM: Floats, row_D: Ints, fetch: int, *, coded: bool) -> tuple[RankedRows, int]:
        """Return each query's best `fetch` rows by their stored vectors, and how many of these were compared."""
        if not coded or self._codebook is None or fetch >= len(row_D):
            return _exact(rows, query_QM, row_D, fetch), len(row_D)
        _, place_QT = self._index.search(self._codebook.padded(query_QM), fetch)
        row_QT = np.where(place_QT < 0, -1, row_D[place_QT])  # faiss leaves out some of the worst
        return rows.scored(query_QM, row_QT), fetch


def _exact(rows: Rows, query_QM: Floats, row_D: Ints, count: int) -> RankedRows:
    """Find the `count` best of some rows for each query by their stored vectors, best first."""
    query_MQ = torch.from_numpy(np.ascontiguousarray(query_QM, dtype=np.float32)).T
    best = [RankedRows.none(len(query_QM))]
    for begin in range(0, len(row_D), AT_ONCE):
        row_B = row_D[begin : begin + AT_ONCE]
        score_TQ, place_TQ = (rows.vectors(row_B) @ query_MQ).topk(min(count, len(row_B)), dim=0)
        best.append(RankedRows(score_TQ.T.numpy(), row_B[place_TQ.T.numpy()]))
    return RankedRows.joined(best).first(count)


def _coded(segment: MappedSegment, codebook: Codebook, leaves: range, cache_bytes: float) -> Lease:
    """Code the documents of a segment whose first leaf is in a range of leaves."""

    def write(folder: Path) -> None:
        row_D = segment.first_rows(leaves)
        index = codebook.flat(np.zeros((0, codebook.dimension), np.float32))
        for begin in range(0, len(row_D), AT_ONCE):
            index.add(codebook.padded(segment.vectors(row_D[begin : begin + AT_ONCE]).numpy()))
        np.save(folder / DOCUMENTS, row_D)
        codecs.write(index, folder / CODES)

    made_of = f"codes {FORMAT} {segment.folder.name} {codebook.name} {leaves}"
    return cache.get_or_build("codes", made_of, write, cache_bytes)


def _merged(first: Any, second: Any) -> Any:
    first.merge_from(second, first.ntotal)
    return first
