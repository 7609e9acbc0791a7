"""Hard negatives: wrong documents that a search ranks high for a query (EHI's Algorithm 1, Appendix C.2; ANCE)."""

from collections.abc import Callable

import numpy as np

from rayhier.arrays import Ints
from rayhier.dataset.ranking import repeated
from rayhier.train.examples import KnownPositives

CHUNK_QUERIES = 4096


Search = Callable[[slice, int], Ints]
"""Function from a slice of the pairs and k to the k best document rows [p, k] for their queries; -1 means no row."""


def mine(search: Search, query_P: Ints, known: KnownPositives, top: int) -> Ints:
    """Mine hard negatives: for each pair the `top` best documents that are no known answers of its query.

    `query_P` are the rows of the pairs' queries. Of documents with the same vector, the best is taken. Returns rows
    [p, top] in the order of the search, -1 where there are fewer.
    """
    mined_PX = np.full((len(query_P), top), -1, dtype=np.int64)
    for start in range(0, len(query_P), CHUNK_QUERIES):
        part = slice(start, start + CHUNK_QUERIES)
        fetch = top + known.most()
        for k in (fetch, 2 * fetch, 4 * fetch, 8 * fetch):  # copies may crowd others out
            row_PK = search(part, min(k, known.documents))
            again_PK = repeated(known.first_N[row_PK])
            wrong_PK = (row_PK >= 0) & ~known(query_P[part, None], row_PK) & ~again_PK
            if not (again_PK & (row_PK >= 0)).any() or (wrong_PK.sum(axis=1) >= top).all() or k >= known.documents:
                break
        order = np.argsort(~wrong_PK, axis=1, kind="stable")[:, :top]
        best = np.take_along_axis(np.where(wrong_PK, row_PK, -1), order, axis=1)
        mined_PX[part, : best.shape[1]] = best
    return mined_PX


def draw(mined_PT: Ints, count: int, generator: np.random.Generator) -> Ints:
    """Draw `count` of each pair's mined negatives [p, top], without repetition: [p, count], -1 where it has fewer."""
    order_PT = np.argsort(np.where(mined_PT >= 0, generator.random(mined_PT.shape), 2.0), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(mined_PT, order_PT[:, :count], axis=1))
