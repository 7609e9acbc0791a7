"""Flat search over representations of one size: total variation, or the inner product of unit vectors."""

from typing import Any, Protocol

import numpy as np

from rayhier.arrays import Bools, Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.spec.train.retreever import Comparison


class FlatSearch(Protocol):
    """Searches an index of represented documents."""

    def __call__(self, query_QK: Floats, count: int, mask_N: Bools | None = None) -> tuple[Floats, Ints]:
        """Return similarities and rows [q, t] of the `count` best documents of each query [q, k], best first.

        All documents are compared, or those in a mask [n], which must have `count` documents or more.
        """


def flat(document_NK: Floats, similarity: Comparison) -> FlatSearch:
    """Index represented documents [n, k], and return the function that searches them by a similarity."""
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
