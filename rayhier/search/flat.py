"""Flat search over representations of one size: total variation, or the inner product of unit vectors."""

from collections.abc import Callable

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.spec.train.retreever import Comparison


def flat(document_NK: Floats, similarity: Comparison) -> Callable[[Floats, int], tuple[Floats, Ints]]:
    """Index represented documents [n, k] for a search: queries [q, k], count -> similarities and rows, best first."""
    cosine = similarity == "cosine"
    index = faiss.IndexFlat(document_NK.shape[1], faiss.METRIC_INNER_PRODUCT if cosine else faiss.METRIC_L1)
    index.add(np.ascontiguousarray(document_NK, dtype=np.float32))

    def search(query_QK: Floats, count: int) -> tuple[Floats, Ints]:
        scores, rows = index.search(np.ascontiguousarray(query_QK, dtype=np.float32), min(count, len(document_NK)))
        return (scores if cosine else -0.5 * scores), rows

    return search
