"""What a benchmark takes of the machine: threads and seconds, in rounds of several pieces of work."""

import os
import time
from collections.abc import Callable, Mapping

import numpy as np
import torch

from rayhier.arrays import Values
from rayhier.cluster.library import faiss

THREADS = min(2, os.cpu_count() or 1)


def set_threads(threads: int) -> None:
    """Set the number of threads that faiss and torch use."""
    faiss.omp_set_num_threads(threads)
    torch.set_num_threads(threads)


def timed(work: Callable[[], object]) -> float:
    """Seconds that a piece of work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def medians(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each piece of work over interleaved rounds, after one that warms up."""
    return {name: float(np.median(seconds_R)) for name, seconds_R in interleaved(works, rounds).items()}


def interleaved(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Values]:
    """Seconds [rounds] of each piece of work, all in each round, after one that warms up.

    What else the machine does falls on all of them.
    """
    for work in works.values():
        work()
    taken = [{name: timed(work) for name, work in works.items()} for _ in range(rounds)]
    return {name: np.array([seconds[name] for seconds in taken]) for name in works}
