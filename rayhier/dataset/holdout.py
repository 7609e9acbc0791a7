"""Documents held out to stand in for dev queries: the first by hash of the id, whatever order they come in."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayhier.arrays import Floats, Ints
from rayhier.dataset.documents import texts_of
from rayhier.dataset.queries import Queries, load_queries
from rayhier.dataset.ranking import Ranking
from rayhier.storage.artifact import Artifact

SHARE = 0.1
MOST = 1000
NEIGHBOURS = 10


@dataclass(frozen=True)
class Holdout:
    """Held-out documents by rising hash: hashes [h], ids and results [h], base vectors [h, m]."""

    hash_H: npt.NDArray[np.uint64]
    ids: list[str]
    results: list[str]
    """What each is a result for: itself, or the whole document it is a passage of."""
    vector_HM: Floats

    @classmethod
    def of(cls, doc_ids: pa.Array, result_ids: pa.Array, vector_NM: Floats, most: int) -> "Holdout":
        """The documents, at most so many, that come first by hash of the id."""
        hashes = hash_ids(doc_ids.to_pylist())
        first = np.argsort(hashes, kind="stable")[:most]
        ids, results = (array.take(pa.array(first)).to_pylist() for array in (doc_ids, result_ids))
        return cls(hashes[first], ids, results, vector_NM[first])

    @staticmethod
    def merge(parts: Sequence["Holdout"], most: int) -> "Holdout":
        """The first of several parts' by hash, at most so many."""
        hashes = np.concatenate([part.hash_H for part in parts])
        ids, results = ([one for part in parts for one in getattr(part, name)] for name in ("ids", "results"))
        first = np.argsort(hashes, kind="stable")[:most]
        vectors = np.concatenate([part.vector_HM for part in parts])
        return Holdout(hashes[first], [ids[row] for row in first], [results[row] for row in first], vectors[first])

    def queries(self, near: Ranking) -> Queries:
        """These documents as queries; relevant are the ten nearest others in a ranking of eleven nearest for each."""
        grades = {}
        for name, own, rows in zip(self.ids, self.results, near.row_QK, strict=True):
            others = [other for other in near.ids[rows[rows >= 0]].tolist() if other != own]
            grades[name] = dict.fromkeys(others[:NEIGHBOURS], 1)
        return Queries(self.ids, self.vector_HM, grades)


def load_dev(
    corpus: Artifact,
    vectors: Artifact,
    holdout: Callable[[], Holdout],
    nearest: Callable[[Floats, int], Ranking],
) -> Queries:
    """The dev queries; where none has an answer, held-out documents that look for their nearest neighbours.

    `nearest` ranks all documents for vectors [h, m] by an exact search.
    """
    queries = load_queries(corpus, vectors, "dev")
    if queries.answered:
        return queries
    held = holdout()
    return replace(held.queries(nearest(held.vector_HM, NEIGHBOURS + 1)), texts=texts_of(corpus, held.ids))


def holdout_rows(ids: Sequence[str]) -> Ints:
    """Rows of a tenth of the documents, at most 1,000, by hash of the id."""
    return np.argsort(hash_ids(ids), kind="stable")[: holdout_size(len(ids))]


def holdout_size(documents: int) -> int:
    """A tenth of the documents, at least one, at most 1,000."""
    return max(1, min(MOST, int(documents * SHARE)))


def hash_ids(ids: Sequence[str]) -> npt.NDArray[np.uint64]:
    """The first eight bytes of each id's BLAKE2b."""
    return np.array([int.from_bytes(hashlib.blake2b(name.encode()).digest()[:8], "big") for name in ids], np.uint64)
