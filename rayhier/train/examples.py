"""Training examples: vectors, and which documents answer which queries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.dataset.documents import Copies


@dataclass(frozen=True)
class Examples:
    """Queries [q, m] and documents [n, m], as base vectors, and the pairs that training brings together."""

    query_QM: Floats
    document_NM: Floats
    pair_P2: Ints
    """Pairs (query row, document row), each once."""
    query_texts: Sequence[str] = ()
    """Texts of the queries; empty where the queries are documents."""
    same: bool = False
    """True if the queries are the documents, row by row; then no document is a negative of itself."""
    spared_S2: Ints | None = None
    """Further pairs (query row, document row) that are no negatives: other passages of a relevant document."""
    copies: Copies | None = None
    """Which rows are passages of the same document; a search returns each whole document once."""

    def answers(self, results: Sequence[str]) -> set[str]:
        """Return the ids of documents that answer a query, from `results`, the id of each row's document.

        The document of a generated query counts as an answer too. Empty where documents are the queries.
        """
        return set() if self.same else {results[row] for row in np.unique(self.pair_P2[:, 1])}

    def known(self) -> "KnownPositives":
        """Index the pairs and the spared pairs, to tell negatives from positives."""
        n = len(self.document_NM)
        pairs = self.pair_P2 if self.spared_S2 is None else np.concatenate([self.pair_P2, self.spared_S2])
        keys = pairs[:, 0] * n + pairs[:, 1]
        if self.same:
            keys = np.concatenate([keys, np.arange(n) * (n + 1)])
        return KnownPositives(np.unique(keys), n)


def joined(first: Examples, other: Examples) -> Examples:
    """Join two sets of pairs over the same documents: queries of the first, then those of the other."""
    moved_2, none_S2 = np.array([len(first.query_QM), 0]), np.empty((0, 2), dtype=np.int64)
    spared, more = (none_S2 if examples.spared_S2 is None else examples.spared_S2 for examples in (first, other))
    return replace(
        first,
        query_QM=np.concatenate([first.query_QM, other.query_QM]),
        pair_P2=np.concatenate([first.pair_P2, other.pair_P2 + moved_2]),
        query_texts=[*first.query_texts, *other.query_texts],
        spared_S2=np.concatenate([spared, more + moved_2]),
    )


@dataclass(frozen=True)
class KnownPositives:
    """Known positives as sorted keys query · n + document."""

    key_P: Ints
    documents: int

    def __call__(self, query_X: Ints, document_X: Ints) -> np.ndarray:
        """Tell known positives: Booleans in the shape to which the rows of queries and of documents broadcast."""
        key = query_X * self.documents + document_X
        place = np.searchsorted(self.key_P, key).clip(max=len(self.key_P) - 1)
        return np.asarray(self.key_P[place] == key)

    def among(self, query_N: Ints, document_D: Ints) -> np.ndarray:
        """Tell known positives: Booleans [n, d], True where document j is one of query i.

        Takes time by the number of each query's positives, not by n x d.
        """
        begin, end = np.searchsorted(self.key_P, [query_N * self.documents, (query_N + 1) * self.documents])
        row_P = np.repeat(np.arange(len(query_N)), end - begin)
        positive_P = self.key_P[spans(begin, end)] % self.documents
        order = np.argsort(document_D, kind="stable")
        first, last = (np.searchsorted(document_D[order], positive_P, side) for side in ("left", "right"))
        known_ND = np.zeros((len(query_N), len(document_D)), dtype=bool)
        known_ND[np.repeat(row_P, last - first), order[spans(first, last)]] = True
        return known_ND

    def most(self) -> int:
        """Return the largest number of known positives that any query has."""
        return int(np.unique(self.key_P // self.documents, return_counts=True)[1].max())


def spans(begin: Ints, end: Ints) -> Ints:
    """Concatenate the whole numbers of every span [begin, end)."""
    size = end - begin
    return np.asarray(np.arange(size.sum()) + np.repeat(begin - np.cumsum(size) + size, size))


def batches(pairs: int, batch_size: int, seed: int, epoch: int) -> list[Ints]:
    """Rows of the pairs in each step of an epoch, shuffled by seed and epoch only, so that a resumed run agrees."""
    order = np.random.default_rng([seed, epoch]).permutation(pairs)
    steps = -(-pairs // batch_size)
    return [np.asarray(part, dtype=np.int64) for part in np.array_split(order, steps)]
