"""What a benchmark takes of the machine: threads and seconds."""

import os
import time
from collections.abc import Callable

import torch

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
