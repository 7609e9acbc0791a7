"""Choose documents that replace missing dev queries: those with the smallest hashes of ids."""

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
from rayhier.spec.search import MOST_QUERIES
from rayhier.storage.artifact import Artifact

SHARE = 0.1
NEIGHBOURS = 10


@dataclass(frozen=True)
class Holdout:
    """Held-out documents in order of their hash: ids and results [h], base vectors [h, m]."""

    ids: list[str]
    results: list[str]
    vector_HM: Floats

    @classmethod
    def of(cls, doc_ids: pa.Array, result_ids: pa.Array, vector_NM: Floats, most: int) -> "Holdout":
        """Hold out at most `most` documents to replace dev queries: those with the smallest hashes of ids."""
        first = np.argsort(hash_ids(doc_ids.to_pylist()), kind="stable")[:most]
        ids, results = (array.take(pa.array(first)).to_pylist() for array in (doc_ids, result_ids))
        return cls(ids, results, vector_NM[first].astype(np.float32, copy=False))

    def queries(self, near: Ranking) -> Queries:
        """Make each held-out document a query, whose answers are the ten nearest other documents in `near`."""
        grades = {}
        for name, result, rows in zip(self.ids, self.results, near.row_QK, strict=True):
            near_ids = [near_id for near_id in near.ids[rows[rows >= 0]].tolist() if near_id != result]
            grades[name] = dict.fromkeys(near_ids[:NEIGHBOURS], 1)
        return Queries(self.ids, self.vector_HM, grades)


def load_dev(
    corpus: Artifact,
    vectors: Artifact,
    holdout: Callable[[], Holdout],
    nearest: Callable[[Floats, int], Ranking],
) -> Queries:
    """Load the dev queries. If none has an answer, held-out documents become queries for `nearest` documents."""
    queries = load_judged(corpus, vectors)
    if queries.answered:
        return queries
    held_out = holdout()
    return replace(held_out.queries(nearest(held_out.vector_HM, NEIGHBOURS + 1)), texts=texts_of(corpus, held_out.ids))


def load_judged(corpus: Artifact, vectors: Artifact) -> Queries:
    """Load at most 1,000 judged dev queries with the smallest hashes of ids, so that all phases use the same."""
    queries = load_queries(corpus, vectors, "dev")
    return queries.some(np.isin(queries.ids, held_queries(queries.ids, MOST_QUERIES)))


def holdout_rows(ids: Sequence[str]) -> Ints:
    return np.argsort(hash_ids(ids), kind="stable")[: holdout_size(len(ids))]


def holdout_size(documents: int) -> int:
    """Return the number of documents to hold out: a tenth, at least one, at most 1,000."""
    return max(1, min(MOST_QUERIES, int(documents * SHARE)))


def held_queries(ids: Sequence[str], count: int) -> list[str]:
    """Return the ids of `count` queries that are kept from training: those with the smallest hashes of ids."""
    return [ids[row] for row in np.argsort(hash_ids(ids), kind="stable")[:count]]


def hash_ids(ids: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Hash each id to a number of 64 bits [n]: the first eight bytes of its BLAKE2b hash."""
    return np.array([int.from_bytes(hashlib.blake2b(name.encode()).digest()[:8], "big") for name in ids], np.uint64)
