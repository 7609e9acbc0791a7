"""Exact search, without an index: every document is scored by its inner product with the query."""

from collections.abc import Callable

import pyarrow as pa

from rayhier.arrays import Floats, Ints
from rayhier.dataset.documents import result_numbers
from rayhier.dataset.ranking import Ranking, once, whole_scan
from rayhier.model.device import gpu
from rayhier.search.segment.scan import ListedRows, scan
from rayhier.spec.train.retreever import Comparison


def exact(query_QM: Floats, vector_NM: Floats, doc_ids: pa.Array, result_ids: pa.Array, k: int) -> Ranking:
    """Rank the best k results of each query [q, m] among all documents' vectors [n, m], by inner product.

    `doc_ids` are the ids of the rows, and `result_ids` [n] of their results. Passages of one document share a result.
    """
    best = exact_rows(query_QM, vector_NM, result_numbers(doc_ids, result_ids), k)
    return whole_scan(*best, result_ids, len(vector_NM))


def exact_rows(
    query_QM: Floats, vector_NM: Floats, result_N: Ints | None, k: int, comparison: Comparison = "cosine"
) -> tuple[Floats, Ints]:
    """Return scores and rows [q, k] of the best k results of each query [q, m] among all vectors [n, m].

    `result_N` [n] numbers each row's result. None if every row is a result. `tv` compares by minus the total variation.
    """
    rows = ListedRows.of(vector_NM)
    if gpu() is not None and comparison == "cosine":
        from rayhier.cluster.neighbours import Neighbours

        documents = Neighbours(vector_NM)
        return best_results(lambda count: documents.search(query_QM, count)[::-1], result_N, len(vector_NM), k)

    def nearest(count: int) -> tuple[Floats, Ints]:
        return scan(rows, query_QM, None, count, comparison=comparison).arrays

    return best_results(nearest, result_N, len(vector_NM), k)


def best_results(
    fetch_rows: Callable[[int], tuple[Floats, Ints]], result_N: Ints | None, rows: int, k: int
) -> tuple[Floats, Ints]:
    """Return scores and rows [q, k] of the best k results, each once, of a search over `rows` rows.

    `fetch_rows(n)` finds scores and rows [q, n] of the best n rows. `result_N` [n] numbers each row's result.
    """
    if result_N is None:
        return fetch_rows(min(k, rows))
    fetch = min(2 * k, rows)
    while True:
        fetched = fetch_rows(fetch)
        scores, best = once(*fetched, result_N, k)
        lacks_Q = (best >= 0).sum(axis=1) < k
        if fetch == rows or not (lacks_Q & (fetched[1][:, -1] >= 0)).any():
            return scores, best
        fetch = min(2 * fetch, rows)
