"""Draw the documents that queries are written for: the first by a hash of seed and id, whatever the corpus's order."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rayhier.dataset.holdout import hash_ids
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact

Hashes = npt.NDArray[np.uint64]


def hashes(ids: Sequence[str], seed: int) -> Hashes:
    """Hash the seed and the id of each row, [n]; the hash differs from the one that holds documents out."""
    return hash_ids([f"{seed}\0{name}" for name in ids])


def last_hash(corpus: Artifact, most: int, seed: int) -> int | None:
    """Return the largest hash of the `most` rows that are drawn; None where all rows are drawn."""
    if int(corpus.record.counts["rows"]) <= most:
        return None
    first = np.empty(0, np.uint64)
    for name in corpus.names("documents/"):
        hash_N = hashes(columns.read([corpus.path(name)], ["doc_id"])["doc_id"].to_pylist(), seed)
        first = np.concatenate([first, hash_N])
        if len(first) > most:
            first = np.partition(first, most - 1)[:most]
    return int(first.max())
