"""Limit the threads of encoders, scans, torch and faiss. Each thread has its own limit, as in OpenMP."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

_local = threading.local()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def get_threads() -> int:
    """Return the limit of this thread. If `set_threads` set none, return OMP_NUM_THREADS, else the number of cores."""
    chosen: int | None = getattr(_local, "threads", None)
    given = os.environ.get("OMP_NUM_THREADS", "")
    return chosen or (int(given) if given.isdecimal() and int(given) else cores())


def set_threads(count: int) -> None:
    """Limit the work of this thread to `count` threads, at most one for each core. Import torch and faiss before."""
    _local.threads = count = max(1, min(count, cores()))
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(count)
    if (faiss := sys.modules.get("faiss")) is not None:
        faiss.omp_set_num_threads(count)


@contextlib.contextmanager
def threads(count: int | None = None) -> Iterator[None]:
    """Limit the work of the block to `count` threads (None: no new limit). Restore the earlier limit afterwards."""
    before = get_threads()
    set_threads(before if count is None else count)
    try:
        yield
    finally:
        set_threads(before)
