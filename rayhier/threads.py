"""Limit the threads of encoders, scans, torch and faiss. Each thread has its own limit, as in OpenMP."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

_local = threading.local()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def get_threads() -> int:
    """Return the limit of this thread. If `set_threads` set none, return OMP_NUM_THREADS, else the number of cores."""
    chosen: int | None = getattr(_local, "threads", None)
    given = os.environ.get("OMP_NUM_THREADS", "")
    return chosen or (int(given) if given.isdecimal() and int(given) else cores())


def set_threads(count: int, *, libraries: bool = True) -> None:
    """Limit this thread's encoders and scans, and with `libraries` torch and faiss, to `count` threads."""
    _local.threads = count = max(1, min(count, cores()))
    for _, limit in _imported() if libraries else ():
        limit(count)


@contextlib.contextmanager
def threads(count: int | None = None) -> Iterator[None]:
    """Limit the block, and numpy's matrix products in all threads, to `count` threads. Restores limits at its end."""
    before, limits = getattr(_local, "threads", None), [(limit, get()) for get, limit in _imported()]
    products: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if count is not None:
        from threadpoolctl import threadpool_limits  # the small install lacks this package

        set_threads(count)
        products = threadpool_limits(min(count, cores()), "blas")
    try:
        with products:
            yield
    finally:
        _local.threads = before
        for limit, of_before in limits:
            limit(of_before)


def _imported() -> list[tuple[Callable[[], int], Callable[[int], None]]]:
    """Return functions that get and set the threads of torch and faiss, if they are imported."""
    torch, faiss = (sys.modules.get(name) for name in ("torch", "faiss"))
    named = (torch, "get_num_threads", "set_num_threads"), (faiss, "omp_get_max_threads", "omp_set_num_threads")
    return [(getattr(library, get), getattr(library, limit)) for library, get, limit in named if library is not None]
