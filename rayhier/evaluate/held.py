"""Documents held out to stand in for dev queries: the first by hash of the id, whatever order they come in."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rayhier.storage.columns import Floats

SHARE = 0.1
MOST = 1000


@dataclass(frozen=True)
class Held:
    """Held-out documents by rising hash: hashes [h], ids and results [h], base vectors [h, m]."""

    hash_H: npt.NDArray[np.uint64]
    ids: list[str]
    results: list[str]
    """What each is a result for: itself, or the whole document it is a passage of."""
    vector_HM: Floats

    @staticmethod
    def merge(parts: Sequence["Held"], most: int) -> "Held":
        """The first of several parts'."""
        hashes = np.concatenate([part.hash_H for part in parts])
        ids, results = ([one for part in parts for one in getattr(part, name)] for name in ("ids", "results"))
        first = np.argsort(hashes, kind="stable")[:most]
        vectors = np.concatenate([part.vector_HM for part in parts])
        return Held(hashes[first], [ids[row] for row in first], [results[row] for row in first], vectors[first])


def how_many(documents: int) -> int:
    """A tenth of the documents, at least one, at most 1,000."""
    return max(1, min(MOST, int(documents * SHARE)))


def hash_ids(ids: Sequence[str]) -> npt.NDArray[np.uint64]:
    """The first eight bytes of each id's BLAKE2b."""
    return np.array([int.from_bytes(hashlib.blake2b(name.encode()).digest()[:8], "big") for name in ids], np.uint64)
