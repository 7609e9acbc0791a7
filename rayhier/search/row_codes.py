"""Search of all documents by four-bit codes of their vectors, without leaves: `search.how: codes`.

A vector is cut into pieces of four numbers, and each piece is replaced by the nearest of sixteen centroids. A query's
products with the centroids are a table, from which faiss adds up a document's score in the processor's registers (André
et al., "Cache locality is not enough", 2015). The best documents are then scored by their stored vectors. Trials of
faiss alone over 107,525 documents answered as many queries a second as HNSW did in the same run (docs/choosing.md).

Shapes: N documents, M embedding size, P the embedding size rounded up to whole pieces, Q queries, T documents found.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from rayhier.arrays import Bools, Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.search.level_similarity import FlatQuery, LevelSimilarity

PIECE = 4
"""Numbers of a vector that one code of four bits stands for."""
CENTROIDS = 16
"""Centroids of a piece: what four bits can tell apart."""
ADDED = 128
"""Dimensions of a vector whose table entries are added in the time of one multiply-add."""
FEWEST = 1_000
"""Fewest documents that are coded: fewer are compared by their stored vectors."""
MOST_TAUGHT = 100_000
"""Most documents from which the centroids are computed."""
AT_ONCE = 16_384
"""Documents that are compared by their stored vectors at a time."""
SEED = 0


@dataclass(frozen=True)
class CodeSimilarity:
    """The rule of a search by codes: the inner product by codes, then that of the stored vectors."""

    comparison: Literal["cosine"] = "cosine"
    again: Literal["vectors"] = "vectors"

    @property
    def numbers(self) -> str:
        """Say in words by what documents are compared."""
        return "codes of their vectors"

    def query(self, query_QM: Floats) -> FlatQuery:
        """Make a query of vectors [q, m], which are compared with codes first and with stored vectors again."""
        return FlatQuery(query_QM, query_QM)


FlatSimilarity = LevelSimilarity | CodeSimilarity
"""A rule by which all documents are compared, and the best of them scored again."""


def multiply_adds(documents: int, dimension: int) -> int:
    """Count the multiply-adds of comparing a query with all documents' codes: its table, and sums by their time."""
    padded = -(-dimension // PIECE) * PIECE
    return CENTROIDS * padded + documents * padded // ADDED


def code(vector_NM: npt.NDArray[Any]) -> Any:
    """Code n vectors [n, m], n at least 624; returns faiss's index of the codes. Equal vectors give equal codes."""
    n, m = vector_NM.shape
    padded = -(-m // PIECE) * PIECE
    index: Any = faiss.IndexPQFastScan(padded, padded // PIECE, 4, faiss.METRIC_INNER_PRODUCT)
    taught = np.sort(np.random.default_rng(SEED).permutation(n)[:MOST_TAUGHT])
    index.train(_padded(vector_NM[taught], padded))
    for begin in range(0, n, MOST_TAUGHT):
        index.add(_padded(vector_NM[begin : begin + MOST_TAUGHT], padded))
    return index


class RowCodes:
    """Documents of a part of an index, compared by their codes; a `FlatSearch`."""

    def __init__(self, vector_NM: npt.NDArray[Any], index: Any = None) -> None:
        """Take stored vectors [n, m], in memory or mapped, and their codes; without codes vectors are compared."""
        self._vector_NM, self._index = vector_NM, index

    def __call__(self, query_QK: Floats, count: int, mask_N: Bools | None = None) -> tuple[Floats, Ints]:
        """Return scores and rows [q, t] of the `count` documents with the highest scores by code, in order.

        With a mask [n], the documents where it is True are compared by their stored vectors: faiss skips no codes. So
        are all documents where all are wanted: of the worst ones faiss leaves some out, and where it finds fewer than
        `count`, the rest is row -1 and score -inf.
        """
        if mask_N is not None or self._index is None or count >= len(self._vector_NM):
            return self._by_vectors(query_QK, count, np.arange(len(self._vector_NM)) if mask_N is None else mask_N)
        queries = _padded(query_QK, self._index.d)
        score_QT, row_QT = self._index.search(queries, min(count, len(self._vector_NM)))
        score_QT[row_QT < 0] = -np.inf
        return score_QT, row_QT

    def _by_vectors(self, query_QM: Floats, count: int, chosen: npt.NDArray[Any]) -> tuple[Floats, Ints]:
        row_A = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        query_MQ = torch.from_numpy(np.ascontiguousarray(query_QM, dtype=np.float32)).T
        best: list[tuple[torch.Tensor, torch.Tensor]] = []
        for begin in range(0, len(row_A), AT_ONCE):
            row_B = row_A[begin : begin + AT_ONCE]
            score_BQ = torch.from_numpy(np.asarray(self._vector_NM[row_B])).float() @ query_MQ
            score_TQ, place_TQ = score_BQ.topk(min(count, len(row_B)), dim=0)
            best.append((score_TQ, torch.from_numpy(row_B)[place_TQ]))
        score_FQ, row_FQ = (torch.cat(parts) for parts in zip(*best, strict=True))
        score_TQ, place_TQ = score_FQ.topk(min(count, len(score_FQ)), dim=0)
        return score_TQ.T.numpy(), row_FQ.gather(0, place_TQ).T.numpy()


def _padded(vector_NM: npt.NDArray[Any], size: int) -> Floats:
    """Convert vectors to float32 with `size` numbers, the added ones 0."""
    vector_NP = np.zeros((len(vector_NM), size), np.float32)
    vector_NP[:, : vector_NM.shape[1]] = vector_NM
    return vector_NP
