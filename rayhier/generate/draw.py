"""Draw the documents that queries are written for: the first by a hash of seed and id, wherever they lie."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rayhier.dataset.holdout import hash_ids
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact

Hashes = npt.NDArray[np.uint64]


def hashes(ids: Sequence[str], seed: int) -> Hashes:
    """Hash seed and id of each row, unlike the hash that holds documents out: [n]."""
    return hash_ids([f"{seed}\0{name}" for name in ids])


def last_hash(corpus: Artifact, most: int, seed: int) -> int | None:
    """Find the largest hash of the `most` drawn rows; None where the corpus has no more rows than `most`."""
    if int(corpus.record.counts["rows"]) <= most:
        return None
    first = np.empty(0, np.uint64)
    for name in corpus.names("documents/"):
        hash_N = hashes(columns.read([corpus.path(name)], ["doc_id"])["doc_id"].to_pylist(), seed)
        first = np.concatenate([first, hash_N])
        if len(first) > most:
            first = np.partition(first, most - 1)[:most]
    return int(first.max())
