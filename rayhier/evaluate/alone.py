"""Time single queries on one core."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rayhier.arrays import Ints, Values
from rayhier.threads import threads

TIMED = 20


def timed_rows(queries: int) -> Ints:
    """Return the numbers of the queries to time: at most 20 of them, evenly spread."""
    return np.unique(np.linspace(0, queries - 1, min(TIMED, queries)).astype(np.int64))


def seconds_of(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Values:
    """Measure the seconds [n] of each of n calls of a function on one core."""
    taken = np.zeros(len(calls))
    with threads(1):
        for number, arguments in enumerate(calls):
            began = time.perf_counter()
            function(*arguments)
            taken[number] = time.perf_counter() - began
    return taken
