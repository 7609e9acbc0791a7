"""The scan of rows in lists, in numpy. This code defines what native kernels compute, and replaces missing kernels.

A row has a code: two bits for each dimension of its difference from its file's center. A query is rounded to 8 bits.
Codes give estimates of scores, and the best `listed` rows get exact scores. The codes are those of RaBitQ (Gao and
Long, 2024) without its rotation (docs/results/LOG.md).

Shapes: N rows, M embedding size, L lists, Q queries, B leaves of a query, K results, X blocks of four rows, G groups of
64 dimensions.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rayhier.arrays import Bools, Floats, Ints

CODED_AT_ONCE = 16_384
"""Number of rows whose codes are computed at a time, to limit memory."""
LEVELS = 127
"""Largest whole number to which the numbers of a query's vector are rounded."""
BLOCK = 4
"""Number of rows whose codes lie together in memory."""


class CodedFile(NamedTuple):
    """Rows of a file, list after list."""

    vector_NM: npt.NDArray[Any]
    """Vectors of 16 or 32 bits, in memory or mapped."""
    code_XG64: npt.NDArray[np.uint8]
    term_N2: Floats
    center_2M: Floats
    """`code_XG64`, `term_N2` and `center_2M` hold the rows' codes, as `Codes` describes."""
    bias_N: Floats | None
    """Number [n] that is added to each row's score. None adds nothing."""
    leaf_L: Ints
    size_L: Ints
    """Leaf, and number of rows, of each list."""
    lower_N: Ints | None
    """For a row in its document's second leaf, the document's first leaf, else -1. None if all are -1."""


class Codes(NamedTuple):
    """Codes of rows: <v, q> is about <c, q> + shift + scale · <code - 1.5, q - r>.

    c is the center of the rows v. r is the approximate center of the queries q.
    """

    code_XG64: npt.NDArray[np.uint8]
    """Codes of blocks of four rows: 16 bytes for each row and 64 dimensions. Byte b has dimensions b, 16 + b, 32 + b
    and 48 + b, the first in the lowest bits."""
    term_N2: Floats
    """Scale and shift of each row. The shift is <v - c, r>, since vectors of an encoder may share a direction."""
    center_2M: Floats


def codes_of(vector_NM: npt.NDArray[Any]) -> Codes:
    """Code rows [n, m] with two bits for each dimension of their difference from their center.

    A difference is rounded with several step sizes, and the code with the highest cosine to the difference is kept. The
    code's scale makes its dot product with the difference exact. The queries' center is estimated as the rows' center
    divided by the rows' mean norm.
    """
    center_M = (vector_NM.sum(axis=0, dtype=np.float32) / max(1, len(vector_NM))).astype(np.float32)
    cuts = range(0, max(1, len(vector_NM)), CODED_AT_ONCE)
    sample_SM = vector_NM[:: max(1, len(vector_NM) // CODED_AT_ONCE)].astype(np.float32)
    norm = float(np.linalg.norm(sample_SM, axis=1).mean()) if len(sample_SM) else 1.0
    center_2M = np.stack([center_M, center_M / np.float32(norm or 1)])
    offsets = (vector_NM[begin : begin + CODED_AT_ONCE].astype(np.float32) - center_M for begin in cuts)
    codes, terms = zip(*(_coded(offset_NM, center_2M[1]) for offset_NM in offsets), strict=True)
    return Codes(np.concatenate(codes), np.concatenate(terms), center_2M)


def _coded(offset_NM: Floats, center_M: Floats) -> tuple[npt.NDArray[np.uint8], Floats]:
    n, m = offset_NM.shape
    norm_N, largest_N = np.square(offset_NM).sum(axis=1), np.abs(offset_NM).max(axis=1, initial=1e-12)
    best_N, code_NM, scale_N = np.full(n, -np.inf), np.zeros((n, m), np.uint8), np.zeros(n, np.float32)
    for share in np.arange(1.0, 0.25, -0.1):
        number_NM = np.clip(np.floor(offset_NM / (largest_N * share / 2)[:, None]) + 2, 0, 3)
        product_N = ((number_NM - 1.5) * offset_NM).sum(axis=1)
        cosine_N = product_N / np.sqrt(np.square(number_NM - 1.5).sum(axis=1))
        is_closer_N = cosine_N > best_N
        best_N[is_closer_N], code_NM[is_closer_N] = cosine_N[is_closer_N], number_NM[is_closer_N]
        scale_N[is_closer_N] = (norm_N / np.maximum(product_N, 1e-12))[is_closer_N]
    code_XRGSB = np.zeros((-(-n // BLOCK) * BLOCK, -(-m // 64) * 64), np.uint8)
    code_XRGSB[:n, :m] = code_NM
    code_XRGSB = code_XRGSB.reshape(-1, BLOCK, -(-m // 64), 4, 16)
    code_XRGB = (code_XRGSB << np.arange(0, 8, 2, dtype=np.uint8)[:, None]).sum(axis=3, dtype=np.uint8)
    code_XG64 = np.ascontiguousarray(code_XRGB.swapaxes(1, 2)).reshape(len(code_XRGB), -(-m // 64), 64)
    return code_XG64, np.stack([scale_N, (offset_NM @ center_M).astype(np.float32)], axis=1)


def _numbers(code_XG64: npt.NDArray[np.uint8], row_A: Ints, m: int) -> npt.NDArray[np.uint8]:
    """Return the codes of some rows as numbers [a, m] from 0 to 3."""
    code_AGB = code_XG64.reshape(*code_XG64.shape[:2], BLOCK, 16)[row_A // BLOCK, :, row_A % BLOCK]
    slots = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    return np.asarray((code_AGB[:, :, None] >> slots & 3).reshape(len(row_A), -1)[:, :m])


class Columns:
    """Reads single rows of mapped columns as Python objects."""

    def __init__(self, files: Sequence[Sequence[Any]]) -> None:
        """Take the columns of each file: int32 numbers [n], or texts as Arrow has them, (begins [n + 1], bytes)."""
        self._files = files
        counts = (len(column[0]) - 1 if isinstance(column, tuple) else len(column) for column, *_ in files)
        self._first_F = np.cumsum([0, *counts])

    def take(self, rows: Ints) -> list[tuple[Any, ...]]:
        """Return the values of rows [r], which are numbered file after file."""
        file_R = np.searchsorted(self._first_F, rows, side="right") - 1
        places = zip(file_R.tolist(), (rows - self._first_F[file_R]).tolist(), strict=True)
        return [tuple(_value(column, place) for column in self._files[file]) for file, place in places]

    def ranks(self, rows: Ints) -> Ints:
        """Rank rows [r] by the text in their first column: its place among the distinct texts, sorted by bytes."""
        texts = [values[0] for values in self.take(rows)]
        place = {text: number for number, text in enumerate(sorted(set(texts)))}
        return np.array([place[text] for text in texts], np.int64)


def _value(column: Any, place: int) -> Any:
    if not isinstance(column, tuple):
        return int(column[place])
    begins, content = column
    return content[begins[place] : begins[place + 1]].tobytes().decode()


class CodedRows:
    """Rows of several files under one numbering, file after file."""

    def __init__(self, dimension: int, leaves: int, files: Sequence[tuple[Any, ...]]) -> None:
        """Take files with the fields of `CodedFile`, and the number of leaves. No query compares rows of leaf -1."""
        self._m, self._leaves, self._files = dimension, leaves, [CodedFile(*file) for file in files]
        self._first_F = np.cumsum([0, *(len(file.vector_NM) for file in self._files)])
        self.count = int(self._first_F[-1])
        self._leaf_N = np.full(self.count, -1)
        for file, first in zip(self._files, self._first_F.tolist(), strict=False):
            self._leaf_N[first : first + int(file.size_L.sum())] = np.repeat(file.leaf_L, file.size_L)
        lower = [np.full(len(file.vector_NM), -1) if file.lower_N is None else file.lower_N for file in self._files]
        self._lower_N = np.concatenate([np.zeros(0, np.int64), *lower])

    def scan(
        self,
        queries: Floats,
        leaves: Ints | None,
        k: int,
        listed: int,
        keep: Bools | None,
        threads: int = 1,  # noqa: ARG002  the extension's
        kernel: str = "best",  # noqa: ARG002
    ) -> tuple[Ints, Floats, Ints]:
        """Find the k best rows of queries [q, m] in their leaves [q, β] (None: all), among rows that `keep` marks.

        Returns rows [q, k] (-1 for none), scores [q, k], and numbers of compared rows [q]. If a document has two
        visited leaves, only its row in the first counts. If more than `listed` and k rows count, codes choose rows for
        exact scores. Ties are in the order of rows.
        """
        row_QK, score_QK = np.full((len(queries), k), -1), np.full((len(queries), k), -np.inf, np.float32)
        compared_Q = np.zeros(len(queries), np.int64)
        for query, query_M in enumerate(queries):
            row_A = self._visited(None if leaves is None else leaves[query], keep)
            compared_Q[query] = len(row_A)
            if len(row_A) > max(k, listed):
                row_A = np.sort(_best(row_A, self._by_codes(row_A, query_M), max(k, listed))[0])
            row_A, score_A = _best(row_A, self._exact(row_A, query_M), k)
            row_QK[query, : len(row_A)], score_QK[query, : len(row_A)] = row_A, score_A
        return row_QK, score_QK, compared_Q

    def products(self, queries: Floats, rows: Ints) -> Floats:
        """Compute the inner products [q, t] of queries [q, m] and the vectors of rows [q, t]. Row -1 gets -inf."""
        product_QT = np.full(rows.shape, -np.inf, np.float32)
        for product_T, query_M, row_T in zip(product_QT, queries, rows, strict=True):
            order_T = np.argsort(row_T, kind="stable")
            order_T = order_T[row_T[order_T] >= 0]
            product_T[order_T] = self._exact(row_T[order_T], query_M)
        return product_QT

    def _visited(self, leaf_B: Ints | None, keep_N: Bools | None) -> Ints:
        is_visited_L = np.full(self._leaves + 1, leaf_B is None)
        if leaf_B is not None:
            is_visited_L[np.minimum(leaf_B, self._leaves)] = True
        is_visited_L[-1] = False  # leaf -1, and leaves that are not here
        is_in_N = is_visited_L[self._leaf_N] & ~is_visited_L[np.minimum(self._lower_N, self._leaves)]
        return np.flatnonzero(is_in_N if keep_N is None else is_in_N & keep_N)

    def _by_codes(self, row_A: Ints, query_M: Floats) -> Floats:
        scores = [np.zeros(0, np.float32)]
        for file, place_A in self._by_file(row_A):
            offset_M = query_M - file.center_2M[1]
            step = np.float32(np.abs(offset_M).max(initial=0) / np.float32(LEVELS)) or np.float32(1)
            number_M = np.rint(offset_M * (np.float32(1) / step))
            product_A = (_numbers(file.code_XG64, place_A, self._m) - np.float32(1.5)) @ number_M
            scale_A, shift_A = file.term_N2[place_A].T
            scores.append(
                _biased(file, place_A, np.dot(file.center_2M[0], query_M) + shift_A + scale_A * step * product_A)
            )
        return np.concatenate(scores)

    def _exact(self, row_A: Ints, query_M: Floats) -> Floats:
        scores = [np.zeros(0, np.float32)]
        for file, place_A in self._by_file(row_A):
            scores.append(_biased(file, place_A, np.dot(file.vector_NM[place_A].astype(np.float32), query_M)))
        return np.concatenate(scores)

    def _by_file(self, row_A: Ints) -> list[tuple[CodedFile, Ints]]:
        """Return each file that has some of the ascending rows [a], with the rows' places in the file."""
        cut_F = np.searchsorted(row_A, self._first_F)
        spans = zip(self._files, self._first_F, cut_F, cut_F[1:], strict=False)
        return [(file, row_A[begin:end] - first) for file, first, begin, end in spans if begin < end]


def _biased(file: CodedFile, place_A: Ints, score_A: Floats) -> Floats:
    return np.asarray(score_A if file.bias_N is None else score_A + file.bias_N[place_A], np.float32)


def _best(row_A: Ints, score_A: Floats, count: int) -> tuple[Ints, Floats]:
    """Return the `count` best rows and their scores, best first, ties by row. NaN never counts."""
    order_A = np.lexsort((row_A, -score_A))
    order_A = order_A[~np.isnan(score_A[order_A])][:count]
    return row_A[order_A], score_A[order_A]
