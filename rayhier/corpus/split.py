"""Which split a query belongs to, where the source does not say: by a hash of its id, the same on every machine."""

import hashlib
from collections.abc import Sequence

from rayhier.corpus.check import Judgement

DEV = 0.1
TEST = 0.1


def fraction(key: str) -> float:
    """A number in [0, 1] that depends on the id alone: the first 8 bytes of its blake2b hash over 2^64."""
    return int.from_bytes(hashlib.blake2b(key.encode()).digest()[:8], "big") / 2**64


def cut_dev(train: Sequence[Judgement]) -> tuple[list[Judgement], list[Judgement]]:
    """Train without a tenth of its queries, and that tenth, with all their judgements: (train, dev).

    Of two queries or more at least one is dev's, and at least one train's.
    """
    queries = sorted({one.query_id for one in train}, key=fraction)
    below = sum(fraction(query_id) < DEV for query_id in queries)
    dev = set(queries[: min(max(1, below), len(queries) - 1)])
    return [one for one in train if one.query_id not in dev], [one for one in train if one.query_id in dev]


def assign(key: str) -> str:
    """Split of a query of a source that has none: 80% train, 10% dev, 10% test."""
    place = fraction(key)
    if place < DEV:
        return "dev"
    return "test" if place < DEV + TEST else "train"
