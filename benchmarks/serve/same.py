"""Whether served answers are those of offline search."""

import math
from collections.abc import Sequence

Results = Sequence[tuple[str, float]]
"""Ids and scores of an answer, best first."""


def same(served: Results, offline: Results, k: int, within: float) -> bool:
    """Whether an answer is the first k of offline search: the same scores, and the same ids where these are not tied.

    Scores are the same, or tied, where they are at most `within` apart. Offline results go beyond k, so that what is
    tied with the last of the k may stand there.

    >>> offline = [("a", 0.9), ("b", 0.5), ("c", 0.5), ("d", 0.1)]
    >>> same([("a", 0.9), ("c", 0.5)], offline, k=2, within=0.0)
    True
    >>> same([("a", 0.9), ("d", 0.5)], offline, k=2, within=0.0), same([("a", 0.9)], offline, k=2, within=0.0)
    (False, False)
    """
    score_of = dict(offline)
    return len({name for name, _ in served}) == len(served) == min(k, len(offline)) and all(
        abs(score - wanted) <= within and abs(score_of.get(name, math.inf) - wanted) <= within
        for (name, score), (_, wanted) in zip(served, offline, strict=False)
    )
