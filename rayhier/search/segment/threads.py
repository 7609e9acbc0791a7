"""Divides queries among threads, in each of which faiss uses no further ones.

torch has one number of threads for a process, where its products and threads that start later are concerned. So nothing
here changes it but `single_products`, while it lasts.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TypeVar

import numpy as np
import torch

from rayhier.cluster.library import faiss

Part = TypeVar("Part")


def threads_for(queries: int, fewest: int) -> int:
    """Return how many threads to use: as many as faiss may, each with at least `fewest` queries."""
    return max(1, min(faiss.omp_get_max_threads(), queries // fewest))


def in_threads(work: Callable[..., Part], fewest: int, *arrays: np.ndarray) -> list[Part]:
    """Call `work` with a part of the arrays [q, ...] in each thread. Returns what it returned, part after part.

    What is too little for two threads is done in the caller's. What a call raises is raised.
    """
    threads = threads_for(len(arrays[0]), fewest)
    return [work(*arrays)] if threads < 2 else in_pool(work, threads, *arrays)


def in_pool(work: Callable[..., Part], threads: int, *arrays: np.ndarray) -> list[Part]:
    """Call `work` as `in_threads` does, with as many parts as `threads` says, also with a single one."""
    return list(_pool().map(work, *(np.array_split(array, threads) for array in arrays)))


class SingleProducts:
    """Has torch compute each product with one thread, while one or more threads of a process ask for it."""

    def __init__(self) -> None:
        self._lock, self._asked, self._before = Lock(), 0, 1

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._asked:
                self._before = torch.get_num_threads()
            self._asked += 1
            torch.set_num_threads(1)
        try:
            yield
        finally:
            with self._lock:
                self._asked -= 1
                torch.set_num_threads(self._before)  # in this thread too, whoever asks besides


single_products = SingleProducts()


def single_thread() -> None:
    """Have faiss use one thread in the thread that calls this, such as a new one."""
    torch.get_num_threads()  # torch's first call in a thread sets OpenMP's limit there, which is faiss's too
    faiss.omp_set_num_threads(1)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "search", single_thread)
