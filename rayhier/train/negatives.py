"""Hard negatives from the current index (EHI's Algorithm 1 and Appendix C.2), or from an exact search (ANCE's)."""

from collections.abc import Callable

import numpy as np

from rayhier.arrays import Ints
from rayhier.train.examples import KnownPositives

CHUNK_QUERIES = 4096


Search = Callable[[slice, int], Ints]
"""Slice of the pairs, k -> the k best document rows [p, k] of their queries, best first, -1 where there are fewer."""


def mine(search: Search, query_P: Ints, known: KnownPositives, top: int) -> Ints:
    """Mine hard negatives: for each pair the `top` best documents that are no known positives of its query.

    `query_P` are the rows of the pairs' queries. Returns rows [p, top], best first; where fewer are found, -1 fills up.
    """
    mined_PX = np.full((len(query_P), top), -1, dtype=np.int64)
    for start in range(0, len(query_P), CHUNK_QUERIES):
        part = slice(start, start + CHUNK_QUERIES)
        row_PK = search(part, top + known.most())
        wrong_PK = (row_PK >= 0) & ~known(query_P[part, None], row_PK)
        order = np.argsort(~wrong_PK, axis=1, kind="stable")[:, :top]
        best = np.take_along_axis(np.where(wrong_PK, row_PK, -1), order, axis=1)
        mined_PX[part, : best.shape[1]] = best
    return mined_PX


def draw(mined_PT: Ints, count: int, generator: np.random.Generator) -> Ints:
    """Draw `count` mined negatives [p, count] of each pair, each at most once; -1 where the pair has fewer."""
    order_PT = np.argsort(np.where(mined_PT >= 0, generator.random(mined_PT.shape), 2.0), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(mined_PT, order_PT[:, :count], axis=1))
