"""Draw the documents that queries are written for: the first by a hash of seed and id, wherever they lie."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rayhier.dataset.holdout import hash_ids
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact

Hashes = npt.NDArray[np.uint64]


def hashes(ids: Sequence[str], seed: int) -> Hashes:
    """Hash of seed and id of each row; other than the hash that holds documents out."""
    return hash_ids([f"{seed}\0{name}" for name in ids])


def last_hash(corpus: Artifact, most: int, seed: int) -> int | None:
    """Largest hash of the rows that are drawn; None where all are, as the corpus has at most so many."""
    if int(corpus.record.counts["rows"]) <= most:
        return None
    first = np.empty(0, np.uint64)
    for name in corpus.names("documents/"):
        own = hashes(columns.read([corpus.path(name)], ["doc_id"])["doc_id"].to_pylist(), seed)
        first = np.concatenate([first, own])
        if len(first) > most:
            first = np.partition(first, most - 1)[:most]
    return int(first.max())
