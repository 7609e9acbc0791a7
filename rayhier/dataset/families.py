"""Families of queries that ask for the same, and folds of whole families, so that no fold knows another's queries.

Two queries are related if they share an answer, or if their sets of words have a Jaccard similarity of ½ or more. A
family is a connected component: its queries are related through others.

Jaccard divides by the words of both queries. Shares of the longer or of the shorter query alone, ½ or more, join a
third and nine tenths of oewn_examples' queries to one family, because one word is half of a short sentence
(docs/LOG.md).

Shapes: Q queries, W words, D answers, X pairs of queries.
"""

from collections.abc import Collection, Sequence

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from rayhier.arrays import Ints

CHUNK = 2_000
"""Queries that are compared with all others at a time."""


def families(words: Sequence[Collection[str]], answers: Sequence[Collection[str]]) -> Ints:
    """Number the family [q] of each query, from 0.

    `words` holds each query's words, as `dataset.words` splits them, and `answers` the ids of its answers. A query
    without words is related to others through answers alone. Raises ValueError where the two differ in length.

    >>> families([["red", "fox"], ["red", "fox", "den"], ["owl"], ["bat"]], [["a"], ["b"], ["b"], ["c"]])
    array([0, 0, 0, 1])
    """
    if len(words) != len(answers):
        raise ValueError(f"words of {len(words)} queries and answers of {len(answers)}; allowed: of the same queries")
    word_QW, answer_QD = incidence(words), incidence(answers)
    size_Q = word_QW.sum(axis=1)
    pairs = [np.empty((2, 0), dtype=np.int64)]
    for begin in range(0, len(words), CHUNK):
        part = slice(begin, begin + CHUNK)
        shared = (word_QW[part] @ word_QW.T).tocoo()
        first_X, other_X = shared.row + begin, shared.col
        # |A∩B| / |A∪B| >= 1/2, in whole numbers.
        near_X = 3 * shared.data >= size_Q[first_X] + size_Q[other_X]
        answered = (answer_QD[part] @ answer_QD.T).tocoo()
        pairs += [np.stack([first_X, other_X])[:, near_X], np.stack([answered.row + begin, answered.col])]
    first_X, other_X = np.concatenate(pairs, axis=1)
    graph = coo_array((np.ones(len(first_X), np.int8), (first_X, other_X)), shape=(len(words), len(words)))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def incidence(members: Sequence[Collection[str]]) -> csr_array:
    """Make the sparse matrix [q, w] that has 1 where a query has a word, or an answer."""
    sets = [sorted(set(names)) for names in members]
    number: dict[str, int] = {}
    column_X = [number.setdefault(name, len(number)) for names in sets for name in names]
    row_X = np.repeat(np.arange(len(sets)), [len(names) for names in sets])
    return csr_array((np.ones(len(column_X), np.int64), (row_X, column_X)), shape=(len(sets), len(number)))


def folds(family_Q: Ints, count: int, seed: int) -> Ints:
    """Divide queries into `count` folds of about equal numbers of queries, and no family: the fold [q] of each.

    The largest families are placed first, each in the fold that has the fewest queries; families of one size in an
    order that follows from `seed`. Raises ValueError where `count` is below 2 or above the number of families.

    >>> folds(np.array([0, 0, 0, 1, 2, 3]), 2, seed=0).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    family_Q = np.unique(family_Q, return_inverse=True)[1]
    size_F = np.bincount(family_Q)
    if not 2 <= count <= len(size_F):
        raise ValueError(f"count: got {count}; allowed: 2 to {len(size_F)}, the number of families")
    order_F = np.random.default_rng(seed).permutation(len(size_F))
    order_F = order_F[np.argsort(-size_F[order_F], kind="stable")]
    fold_F, queries = np.empty(len(size_F), dtype=np.int64), np.zeros(count, dtype=np.int64)
    for family in order_F:
        fold_F[family] = queries.argmin()
        queries[fold_F[family]] += size_F[family]
    return np.asarray(fold_F[family_Q])
