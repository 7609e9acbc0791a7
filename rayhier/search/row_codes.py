"""Search of all documents by four-bit codes of their vectors, without leaves: `search.how: codes`.

Codes find the best documents, whose stored vectors are then compared with the query, in one call of faiss. Documents
that a filter chooses are compared by their stored vectors at once. Codes and vectors are in memory.

Shapes: N rows, D documents (rows of their first leaf), M embedding size, Q queries, T rows considered, K results.
"""

import weakref
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rayhier.arrays import Bools, Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.dataset.ranking import Needs, Ranking
from rayhier.search import codecs
from rayhier.search.codebook import AT_ONCE, FEWEST, Codebook, codebook_of
from rayhier.search.rows import RankedRows, lacks
from rayhier.search.scan import LeafScan
from rayhier.search.segment import MappedSegment, MemorySegment
from rayhier.spec.filter import Filter
from rayhier.spec.search import SearchSpec
from rayhier.storage import cache
from rayhier.storage.cache import Lease
from rayhier.storage.leaf_map import LeafMap

FORMAT = 2
PART = 1 << 15
"""Fewest documents of a part, but for the last."""
CODES, VECTORS, DOCUMENTS = "codes.faiss", "vectors.faiss", "documents.npy"


class Part:
    """Documents whose vectors, and codes of these, are searched in one call of faiss."""

    def __init__(self, vectors: Any, codes: Any = None) -> None:
        """Take faiss's indexes of vectors and of their codes; None: few documents have no codes."""
        self._vectors, self._codes = vectors, codes  # faiss keeps no reference
        self._both: Any = None if codes is None else faiss.IndexRefine(codes, vectors)

    @property
    def documents(self) -> int:
        """Number of documents."""
        return int(self._vectors.ntotal)

    @property
    def width(self) -> int:
        """Numbers of a vector, with zeros at its end that make their count a multiple of four."""
        return int(self._vectors.d)

    def best(self, query_QW: Floats, count: int, mask_D: Bools | None) -> tuple[Floats, Ints]:
        """Return scores and places [q, t] of each query's best `count` documents, -1 for those that codes leave out.

        Where there is a mask [d], or there are no more documents, all whose mask is True are compared by their vectors.
        """
        count = min(count, self.documents)
        if self._both is None or mask_D is not None or count == self.documents:
            chosen = None if mask_D is None else np.packbits(mask_D, bitorder="little")
            score_QT, place_QT = self._vectors.search(query_QW, count, params=_only(chosen))
        else:
            score_QT, place_QT = self._both.search(query_QW, count)
        return np.where(place_QT < 0, np.float32(-np.inf), score_QT), place_QT


_parts: weakref.WeakValueDictionary[tuple[object, ...], Part] = weakref.WeakValueDictionary()
"""The parts in use, by the files that they were read from: versions of an index share those that did not change."""


class CodeScan:
    """Searches all documents of an index, or of a range of its leaves, by codes of their vectors."""

    def __init__(
        self, leaves: LeafScan, row_D: Ints, parts: Sequence[Part], listed: Callable[[int], int] | None = None
    ) -> None:
        """Take the documents' rows in `leaves`, ascending, and the parts in which these lie one after another.

        `listed` tells the number of rows to score again for a number of results, None: as many as by the spec's
        defaults.
        """
        self._leaves, self._row_D, self._parts = leaves, row_D, list(parts)
        self._listed = listed or SearchSpec().shortlisted

    @classmethod
    def mapped(
        cls, leaf_map: LeafMap, leaves: LeafScan, listed: Callable[[int], int] | None, cache_bytes: float
    ) -> Self:
        """Open the documents whose first leaf is among those of `leaves`; their codes are made once, and cached.

        Neighbouring segments form parts of 32,768 documents or more: of a version that adds some to another, all parts
        but the last ones are in memory already.
        """
        codebook = codebook_of(leaf_map, cache_bytes, rotate=False)
        leases = [_coded(segment, codebook, leaves.leaves, cache_bytes) for segment in _of_files(leaves)]
        row_D, parts, together, size = [np.zeros(0, np.int64)], list[Part](), list[Lease](), 0
        for number, (begin, lease) in enumerate(zip(leaves.rows.begin_S.tolist(), leases, strict=False), start=1):
            row_D.append(begin + np.load(lease.folder / DOCUMENTS))
            together.append(lease)
            size += len(row_D[-1])
            if size and (size >= PART or number == len(leases)):
                parts.append(_part(together))
                together, size = [], 0
        return cls(leaves, np.concatenate(row_D), parts, listed)

    @classmethod
    def memory(cls, segment: MemorySegment) -> Self:
        """Code the rows of a segment in memory, of which each is a document of its own."""
        vector_NM = segment.vector_NM
        codes = Codebook.train(vector_NM).flat(vector_NM) if len(vector_NM) >= FEWEST else None
        return cls(LeafScan.memory(segment), np.arange(len(vector_NM)), [Part(_stored(vector_NM), codes)])

    @property
    def documents(self) -> int:
        """Number of documents that are compared."""
        return len(self._row_D)

    def intact(self) -> bool:
        """Return True if the files that results are read from are unchanged since they were opened."""
        return self._leaves.intact()

    def scan(
        self,
        query_QM: Floats,
        k: int,
        where: Filter | None = None,
        *,
        needs: Needs = "texts",
        listed: int | None = None,
    ) -> Ranking:
        """Rank the best k results of each query [q, m] among all documents, or those that meet a filter.

        The best `listed` rows by codes are scored again; None: as many as the constructor's function tells. The
        ranking's documents have the columns that `needs` names.
        """
        mask_D = None if where is None else self._leaves.mask(where)[self._row_D]
        return self._ranked(query_QM, k, listed or self._listed(k), mask_D, needs)

    def exact(self, query_QM: Floats, k: int, among: Callable[[int], range], where: Filter | None = None) -> Ranking:
        """Rank the best k results of each query [q, m] in a part of the documents, all compared by their vectors.

        `among` returns which of a number of documents belong to the part.
        """
        part, mask_D = among(self.documents), np.zeros(self.documents, bool)
        mask_D[part.start : part.stop] = True
        if where is not None:
            mask_D &= self._leaves.mask(where)[self._row_D]
        return self._ranked(query_QM, k, k, mask_D, "ids")

    def _ranked(self, query_QM: Floats, k: int, fetch: int, mask_D: Bools | None, needs: Needs) -> Ranking:
        """Rank the best k results of each query among the documents where a mask [d] is True, None: among all.

        The best `fetch` rows are scored again, and more where several belong to one result.
        """
        rows, compared = self._leaves.rows, self.documents if mask_D is None else int(mask_D.sum())
        while True:
            ranked, scored = self._best(query_QM, fetch, compared, mask_D)
            score_QK, row_QK, documents, _ = rows.results(ranked, k, needs=needs)
            if fetch >= compared or not lacks(row_QK, k).any():
                break
            fetch *= 2  # many rows belong to few results
        scored_Q = np.full(len(query_QM), scored, dtype=np.int64)
        if scored < compared and self._leaves.holds_passages:  # codes may have found a worse passage of a result
            ranked = self._leaves.passages(query_QM, documents, row_QK)
            score_QK, row_QK, documents, _ = rows.results(ranked, k, needs=needs)
            scored_Q = scored_Q + (ranked.row_QT >= 0).sum(axis=1)
        zero_Q = np.zeros(len(query_QM), dtype=np.int64)
        return Ranking(score_QK, row_QK, documents, zero_Q + compared, scored_Q, zero_Q)

    def candidates(self, query_QM: Floats, listed: int) -> RankedRows:
        """Find each query's best `listed` rows by codes, and order them by their stored vectors, best first."""
        return self._best(query_QM, listed, self.documents, None)[0]

    def _best(self, query_QM: Floats, fetch: int, compared: int, mask_D: Bools | None) -> tuple[RankedRows, int]:
        """Return each query's best `fetch` rows by their stored vectors, and how many of these were computed."""
        count = min(fetch, compared)
        if not count:
            return RankedRows.none(len(query_QM)), 0
        missing = self._parts[0].width - query_QM.shape[1]
        query_QW = np.ascontiguousarray(np.pad(query_QM, ((0, 0), (0, missing))) if missing else query_QM, np.float32)
        scores, rows, begin = list[Floats](), list[Ints](), 0
        for part in self._parts:
            span = slice(begin, begin + part.documents)
            score_QT, place_QT = part.best(query_QW, count, None if mask_D is None else mask_D[span])
            scores.append(score_QT)
            rows.append(np.where(place_QT < 0, -1, self._row_D[span][place_QT]))
            begin = span.stop
        by_vectors = mask_D is not None or count == compared
        if len(scores) == 1:
            return RankedRows(scores[0], rows[0]), compared if by_vectors else scores[0].shape[1]
        ranked = RankedRows(np.concatenate(scores, axis=1), np.concatenate(rows, axis=1))
        return ranked.ordered().first(count), compared if by_vectors else ranked.row_QT.shape[1]


def _only(chosen: npt.NDArray[np.uint8] | None) -> Any:
    """Make faiss's parameters of a search among chosen places, from a mask as bits."""
    if chosen is None:
        return None
    library: Any = faiss  # its type hints lack this name
    return library.SearchParameters(sel=faiss.IDSelectorBitmap(len(chosen), faiss.swig_ptr(chosen)))


def _of_files(leaves: LeafScan) -> Sequence[MappedSegment]:
    """Return a scan's segments; TypeError where they are in memory."""
    segments = [segment for segment in leaves.segments if isinstance(segment, MappedSegment)]
    if len(segments) < len(leaves.segments):
        raise TypeError("codes: got rows in memory; allowed: of mapped segments")
    return segments


def _stored(vector_NM: npt.NDArray[Any], width: int | None = None) -> Any:
    """Put vectors [n, m] into faiss's index of uncompressed vectors, of 16 or 32 bits as they are."""
    n, m = vector_NM.shape
    kind, measure = faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    size = width or -(-m // 4) * 4
    index: Any = faiss.IndexFlatIP(size)
    if vector_NM.dtype == np.float16:
        index = faiss.IndexScalarQuantizer(size, kind, measure)
        index.is_trained = True
    for begin in range(0, n, AT_ONCE):
        part = vector_NM[begin : begin + AT_ONCE].astype(np.float32)
        index.add(np.pad(part, ((0, 0), (0, size - m))))
    return index


def _coded(segment: MappedSegment, codebook: Codebook | None, leaves: range, cache_bytes: float) -> Lease:
    """Code the documents of a segment whose first leaf is in a range of leaves; few have vectors alone."""

    def write(folder: Path) -> None:
        row_D = segment.first_rows(leaves)
        vector_DM = segment.vectors(row_D).numpy()
        kept = vector_DM.astype(np.float16) if segment.half else vector_DM
        np.save(folder / DOCUMENTS, row_D)
        codecs.write(_stored(kept), folder / VECTORS)
        if codebook is not None:
            codecs.write(codebook.flat(vector_DM), folder / CODES)

    coded = "none" if codebook is None else codebook.name
    made_of = f"codes {FORMAT} {segment.folder.name} {coded} {leaves}"
    return cache.get_or_build("codes", made_of, write, cache_bytes)


def _part(leases: Sequence[Lease]) -> Part:
    """Read the documents of some folders as a part, unless it is in memory already."""
    key = tuple(lease.content for lease in leases)
    part = _parts.get(key)
    if part is None:
        part = _parts[key] = Part(*(_read(leases, name) for name in (VECTORS, CODES)))
    return part


def _read(leases: Sequence[Lease], name: str) -> Any:
    """Read the indexes of this name from several folders into one; None where there are none."""
    parts = [faiss.read_index(str(lease.folder / name)) for lease in leases if (lease.folder / name).exists()]
    return reduce(_merged, parts) if parts else None


def _merged(first: Any, second: Any) -> Any:
    first.merge_from(second)
    return first
