"""Times single queries: what one query takes on one core, beside what all queries find."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, TypeVar

import numpy as np
import torch

from rayhier.arrays import Ints, Values
from rayhier.cluster.library import faiss

T = TypeVar("T")
TIMED = 20
"""Most queries that are timed one by one at each point of a curve."""


def timed_rows(queries: int) -> Ints:
    """Return the numbers of the queries to time: at most 20 of them, evenly spread."""
    return np.unique(np.linspace(0, queries - 1, min(TIMED, queries)).astype(np.int64))


def seconds_of(target: T, method: Callable[Concatenate[T, ...], Any], calls: Sequence[tuple[Any, ...]]) -> Values:
    """Measure the seconds [n] that each of n calls of an object's method takes on one core."""
    with one_core():
        return np.array([seconds(method, target, *arguments) for arguments in calls])


def seconds(work: Callable[..., Any], *arguments: Any) -> float:
    """Measure the seconds that a call takes."""
    began = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - began


@contextmanager
def one_core() -> Iterator[None]:
    """Let faiss and torch use a single thread while the block runs."""
    before = faiss.omp_get_max_threads(), torch.get_num_threads()
    faiss.omp_set_num_threads(1)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before[0])
        torch.set_num_threads(before[1])
