"""Choose the split of a query, where the source has no splits, by a hash of its id: equal on every machine."""

import hashlib
from collections.abc import Sequence

from rayhier.corpus.check import Judgement

DEV = 0.1
TEST = 0.1


def fraction(key: str) -> float:
    """Return a number in [0, 1] that depends on the id alone: the first 8 bytes of its blake2b hash over 2^64."""
    return int.from_bytes(hashlib.blake2b(key.encode()).digest()[:8], "big") / 2**64


def cut_dev(train: Sequence[Judgement]) -> tuple[list[Judgement], list[Judgement]]:
    """Return (train, dev): about a tenth of train's queries, with all their judgements, moved to dev.

    Where train has two queries or more, each of the two gets at least one.
    """
    queries = sorted({judgement.query_id for judgement in train}, key=fraction)
    below = sum(fraction(query_id) < DEV for query_id in queries)
    dev = set(queries[: min(max(1, below), len(queries) - 1)])
    kept = [judgement for judgement in train if judgement.query_id not in dev]
    return kept, [judgement for judgement in train if judgement.query_id in dev]


def assign(key: str) -> str:
    """Choose the split of a query whose source has no splits: 80% train, 10% dev, 10% test."""
    place = fraction(key)
    if place < DEV:
        return "dev"
    return "test" if place < DEV + TEST else "train"
