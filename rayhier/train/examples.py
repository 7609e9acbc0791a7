"""What training reads: vectors, and which documents answer which queries."""

from dataclasses import dataclass

import numpy as np

from rayhier.search.lists import Ints
from rayhier.storage.columns import Floats


@dataclass(frozen=True)
class Examples:
    """Queries [q, m], documents [n, m] (base encoder) and the pairs to bring together."""

    query_QM: Floats
    document_NM: Floats
    pair_P2: Ints
    """(query row, document row), each once."""
    same: bool = False
    """Whether the queries are the documents, row for row; then none is a negative of itself."""
    spared_S2: Ints | None = None
    """(query row, document row) that are no pairs to bring together and no negatives either."""

    def known(self) -> "Known":
        """Index of the pairs and of what is spared, to tell negatives from positives."""
        n = len(self.document_NM)
        pairs = self.pair_P2 if self.spared_S2 is None else np.concatenate([self.pair_P2, self.spared_S2])
        keys = pairs[:, 0] * n + pairs[:, 1]
        if self.same:
            keys = np.concatenate([keys, np.arange(n) * (n + 1)])
        return Known(np.unique(keys), n)


@dataclass(frozen=True)
class Known:
    """Known positives as sorted keys query · n + document."""

    key_P: Ints
    documents: int

    def __call__(self, query_X: Ints, document_X: Ints) -> np.ndarray:
        """Whether each (query, document) is a known positive; the two broadcast."""
        key = query_X * self.documents + document_X
        place = np.searchsorted(self.key_P, key).clip(max=len(self.key_P) - 1)
        return np.asarray(self.key_P[place] == key)

    def most(self) -> int:
        """Positives of the query that has most."""
        return int(np.unique(self.key_P // self.documents, return_counts=True)[1].max())


def batches(pairs: int, batch_size: int, seed: int, epoch: int) -> list[Ints]:
    """Rows of the pairs of each step of an epoch: shuffled by seed and epoch alone, so that a resumed run agrees."""
    order = np.random.default_rng([seed, epoch]).permutation(pairs)
    steps = -(-pairs // batch_size)
    return [np.asarray(part, dtype=np.int64) for part in np.array_split(order, steps)]
