"""Exact search, without an index: every document is scored, by inner product or by total variation."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from rayhier.arrays import Bools, Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.dataset.documents import result_numbers
from rayhier.dataset.ranking import Ranking, once, whole_scan
from rayhier.spec.train.retreever import Comparison

FlatSearch = Callable[[Floats, int, Bools | None], tuple[Floats, Ints]]
"""Function that compares queries [q, k] with all documents [n], or those where a mask [n] is True, of which there are
enough. It returns similarities and rows [q, t] of so many documents most similar to each query, in order."""


def exact(query_QM: Floats, vector_NM: Floats, doc_ids: pa.Array, result_ids: pa.Array, k: int) -> Ranking:
    """Rank the best k results of each query [q, m] among all documents' vectors [n, m], by inner product.

    `doc_ids` are the ids of the rows; `result_ids` [n] those of the results that rows belong to, where several passages
    share one.
    """
    best = exact_rows(query_QM, vector_NM, result_numbers(doc_ids, result_ids), k)
    return whole_scan(*best, result_ids, len(vector_NM))


def exact_rows(query_QM: Floats, vector_NM: Floats, result_N: Ints | None, k: int) -> tuple[Floats, Ints]:
    """Return scores and rows [q, k] of the best k results of each query [q, m] among all vectors [n, m].

    `result_N` [n] numbers the result that each row belongs to. None where every row is a separate result.
    """
    if not len(vector_NM):  # faiss cannot search an empty index
        return np.zeros((len(query_QM), 0), np.float32), np.zeros((len(query_QM), 0), np.int64)
    queries, vectors = (np.ascontiguousarray(x, np.float32) for x in (query_QM, vector_NM))
    library: Any = faiss  # its type hints lack this function, which copies no vectors
    nearest = partial(library.knn, queries, vectors, metric=faiss.METRIC_INNER_PRODUCT)
    return best_results(nearest, result_N, len(vector_NM), k)


def best_results(
    fetch_rows: Callable[[int], tuple[Floats, Ints]], result_N: Ints | None, rows: int, k: int
) -> tuple[Floats, Ints]:
    """Return scores and rows [q, k] of the best k results, each once, of a search over `rows` rows.

    `fetch_rows(n)` returns scores and rows [q, n] of the best n rows. `result_N` [n] numbers the result that each row
    belongs to. None where every row is a separate result.
    """
    if result_N is None:
        return fetch_rows(min(k, rows))
    fetch = min(2 * k, rows)
    while True:
        scores, best = once(*fetch_rows(fetch), result_N, k)
        if fetch == rows or (best.shape[1] == k and (best[:, -1] >= 0).all()):
            return scores, best
        fetch = min(2 * fetch, rows)


def flat(document_NK: Floats, similarity: Comparison) -> FlatSearch:
    """Index documents' vectors [n, k]. Returns the function that searches them by a similarity."""
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
