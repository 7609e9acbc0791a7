"""Hold training examples: vectors of queries and documents, and the pairs of a query and its answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rayhier.arrays import Floats, Ints

ROUNDED = 16_384
"""Number of vectors that are rounded at a time, to limit memory."""


@dataclass(frozen=True)
class Examples:
    """Training data: base vectors of queries [q, m] and documents [n, m], and the pairs that are brought together."""

    query_QM: Floats
    document_NM: Floats
    pair_P2: Ints
    query_texts: Sequence[str] = ()
    same: bool = False
    """True if the queries are the documents, row by row. Then no document is a negative of itself."""
    spared_S2: Ints | None = None
    """Further pairs (query row, document row) that are not negatives: other passages of a query's answer."""
    result_N: Ints | None = None
    """Numbers [n] that say which rows are passages of the same document. None if every row is a document."""
    judged: int | None = None

    def answers(self, results: Sequence[str]) -> set[str]:
        """Return the ids of the documents that answer a query. Empty if documents are the queries."""
        return set() if self.same else {results[row] for row in np.unique(self.pair_P2[:, 1])}

    def known(self) -> "KnownPositives":
        """Index which documents are no negatives of a query: its answers, and documents with an answer's vector."""
        n, first_N = len(self.document_NM), firsts(self.document_NM)
        pairs = self.pair_P2 if self.spared_S2 is None else np.concatenate([self.pair_P2, self.spared_S2])
        keys = pairs[:, 0] * n + first_N[pairs[:, 1]]
        if self.same:
            keys = np.concatenate([keys, np.arange(n) * n + first_N])
        return KnownPositives(np.unique(keys), n, first_N)


def firsts(vector_NM: Floats) -> Ints:
    """Return for each document the row [n] of the first document with the same vector, to three decimals.

    >>> firsts(np.array([[1, 0], [0, 1], [1, 0.0000001]]))
    array([0, 1, 0])
    """
    odd_M = np.random.default_rng(0).integers(2**63, size=vector_NM.shape[1], dtype=np.uint64) * 2 + 1
    parts = np.array_split(vector_NM, -(-len(vector_NM) // ROUNDED) or 1)
    hashes = [
        (np.rint(part_NM * np.float32(1000)).astype(np.int64).astype(np.uint64) * odd_M).sum(axis=1)
        for part_NM in parts
    ]
    _, first, place_N = np.unique(np.concatenate(hashes), return_index=True, return_inverse=True)
    return np.asarray(first[place_N], dtype=np.int64)


def joined(first: Examples, other: Examples) -> Examples:
    moved_2, none_S2 = np.array([len(first.query_QM), 0]), np.empty((0, 2), dtype=np.int64)
    spared, more = (none_S2 if examples.spared_S2 is None else examples.spared_S2 for examples in (first, other))
    return replace(
        first,
        query_QM=np.concatenate([first.query_QM, other.query_QM]),
        pair_P2=np.concatenate([first.pair_P2, other.pair_P2 + moved_2]),
        query_texts=[*first.query_texts, *other.query_texts],
        spared_S2=np.concatenate([spared, more + moved_2]),
        judged=len(first.query_QM) if first.judged is None else first.judged,
    )


@dataclass(frozen=True)
class KnownPositives:
    """Known answers as ascending keys: query row times `documents`, plus document row.

    `first_N` maps each document row to the first row with an equal vector.
    """

    key_P: Ints
    documents: int
    first_N: Ints

    def __call__(self, query_X: Ints, document_X: Ints) -> np.ndarray:
        key = query_X * self.documents + self.first_N[document_X]
        place = np.searchsorted(self.key_P, key).clip(max=len(self.key_P) - 1)
        return np.asarray(self.key_P[place] == key)

    def among(self, query_N: Ints, document_D: Ints) -> np.ndarray:
        """Mark [n, d] if a document [d] is a known answer of a query [n]. The time grows with the number of answers."""
        begin, end = np.searchsorted(self.key_P, [query_N * self.documents, (query_N + 1) * self.documents])
        row_P = np.repeat(np.arange(len(query_N)), end - begin)
        positive_P, document_D = self.key_P[ranges(begin, end)] % self.documents, self.first_N[document_D]
        order = np.argsort(document_D, kind="stable")
        first, last = (np.searchsorted(document_D[order], positive_P, side) for side in ("left", "right"))
        known_ND = np.zeros((len(query_N), len(document_D)), dtype=bool)
        known_ND[np.repeat(row_P, last - first), order[ranges(first, last)]] = True
        return known_ND

    def most(self) -> int:
        return int(np.unique(self.key_P // self.documents, return_counts=True)[1].max())


def ranges(begin: Ints, end: Ints) -> Ints:
    size = end - begin
    return np.asarray(np.arange(size.sum()) + np.repeat(begin - np.cumsum(size) + size, size))


def of_same_documents(row_R: Ints, documents: int, result_N: Ints | None) -> tuple[Ints, Ints]:
    """Pair each row with all rows of its document, itself included: positions in `row_R`, and rows."""
    result_N = np.arange(documents) if result_N is None else result_N
    order_N = np.argsort(result_N, kind="stable")
    begin, end = (np.searchsorted(result_N[order_N], result_N[row_R], side) for side in ("left", "right"))
    return np.repeat(np.arange(len(row_R)), end - begin), order_N[ranges(begin, end)]


def batches(pairs: int, batch_size: int, seed: int, epoch: int) -> list[Ints]:
    """Divide the numbers of `pairs` pairs into an epoch's steps of about `batch_size`, in random order."""
    order = np.random.default_rng([seed, epoch]).permutation(pairs)
    steps = -(-pairs // batch_size)
    return [np.asarray(part, dtype=np.int64) for part in np.array_split(order, steps)]
