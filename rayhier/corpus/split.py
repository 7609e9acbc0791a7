"""Choose the split of a query, where its source has no splits, by a hash of its id: the same on every machine."""

import hashlib
from collections.abc import Sequence

from rayhier.corpus.check import Judgement

DEV = 0.1
TEST = 0.1


def fraction(key: str) -> float:
    """Return a number in [0, 1] that depends only on the id: the first 8 bytes of its blake2b hash / 2^64."""
    return int.from_bytes(hashlib.blake2b(key.encode()).digest()[:8], "big") / 2**64


def cut_dev(train: Sequence[Judgement]) -> tuple[list[Judgement], list[Judgement]]:
    """Move about a tenth of the train queries, with all their judgements, to dev; returns (train, dev).

    Train and dev each get at least one query where there are two or more.
    """
    queries = sorted({judgement.query_id for judgement in train}, key=fraction)
    below = sum(fraction(query_id) < DEV for query_id in queries)
    dev = set(queries[: min(max(1, below), len(queries) - 1)])
    remaining = [judgement for judgement in train if judgement.query_id not in dev]
    return remaining, [judgement for judgement in train if judgement.query_id in dev]


def assign(key: str) -> str:
    """Choose the split of a query by its id: 80% train, 10% dev, 10% test."""
    place = fraction(key)
    if place < DEV:
        return "dev"
    return "test" if place < DEV + TEST else "train"
