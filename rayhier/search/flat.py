"""Exact search over documents' vectors of one size, by total variation or inner product."""

from typing import Any, Protocol

import numpy as np

from rayhier.arrays import Bools, Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.spec.train.retreever import Comparison


class FlatSearch(Protocol):
    """Function that compares queries with all documents of an index."""

    def __call__(self, query_QK: Floats, count: int, mask_N: Bools | None = None) -> tuple[Floats, Ints]:
        """Return similarities and rows [q, t] of the `count` documents most similar to each query [q, k], in order.

        All documents are compared, or those where `mask_N` [n] is True, of which there must be `count` or more.
        """


def flat(document_NK: Floats, similarity: Comparison) -> FlatSearch:
    """Index documents' vectors [n, k]; returns the function that searches them by a similarity."""
    cosine = similarity == "cosine"
    index = faiss.IndexFlat(document_NK.shape[1], faiss.METRIC_INNER_PRODUCT if cosine else faiss.METRIC_L1)
    index.add(np.ascontiguousarray(document_NK, dtype=np.float32))

    def search(query_QK: Floats, count: int, mask_N: Bools | None = None) -> tuple[Floats, Ints]:
        queries, parameters = np.ascontiguousarray(query_QK, dtype=np.float32), None
        if mask_N is not None:
            bits = np.packbits(mask_N, bitorder="little")
            library: Any = faiss  # its type hints lack this name
            parameters = library.SearchParameters(sel=faiss.IDSelectorBitmap(len(bits), faiss.swig_ptr(bits)))
        scores, rows = index.search(queries, min(count, len(document_NK)), params=parameters)
        return (scores if cosine else -0.5 * scores), rows

    return search
