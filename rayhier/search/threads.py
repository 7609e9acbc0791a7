"""Divides queries among threads, in each of which faiss and torch use no further ones."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Barrier
from typing import TypeVar

import numpy as np
import torch

from rayhier.cluster.library import faiss

T = TypeVar("T")


def threads_for(queries: int, fewest: int) -> int:
    """Return how many threads to use: as many as faiss may, each with at least `fewest` queries."""
    return max(1, min(faiss.omp_get_max_threads(), queries // fewest))


def divided(work: Callable[..., T], fewest: int, *arrays: np.ndarray) -> list[T]:
    """Call `work` with a part of the arrays [q, ...] in each thread; returns what it returned, part after part.

    What is too little for two threads is done in the caller's.
    """
    threads = threads_for(len(arrays[0]), fewest)
    if threads > 1:
        return together(work, threads, *arrays)
    with _torch_alone():
        return [work(*arrays)]


def together(work: Callable[..., T], threads: int, *arrays: np.ndarray) -> list[T]:
    """Call `work` as `divided` does, in so many threads of the pool, also in a single one."""
    parts = [np.array_split(array, threads) for array in arrays]
    with _torch_alone():
        return list(pool(threads).map(work, *parts))


@contextmanager
def _torch_alone() -> Iterator[None]:
    """Have torch use one thread: waking a second one takes longer than what a query needs of it.

    The library of its products has one number of threads for the whole process.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def pool(threads: int) -> ThreadPoolExecutor:
    """Start so many threads, once in a process; those that start elsewhere, later too, have torch's as before."""
    before, started = torch.get_num_threads(), Barrier(threads)
    # OpenMP's limit is set per thread, so from inside the thread; torch's also for all that start later.
    executor = ThreadPoolExecutor(threads, "search", _single_thread)
    list(executor.map(lambda _: started.wait(), range(threads)))
    torch.set_num_threads(before)
    return executor


def _single_thread() -> None:
    faiss.omp_set_num_threads(1)
    torch.set_num_threads(1)
