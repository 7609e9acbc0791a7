"""Returns freed memory to the system, and keeps the garbage collector from long-lived objects."""

import contextlib
import ctypes
import functools
import gc
from collections.abc import Callable

import pyarrow as pa


def give_back() -> None:
    """Return memory that this process freed to the system, so that opening many versions does not fill memory.

    Arrow's pool and glibc keep freed memory otherwise. Without glibc, only Arrow's memory is returned.
    """
    pa.default_memory_pool().release_unused()
    trim = _trim()
    if trim is not None:
        trim(0)


def settle() -> None:
    """Leave all live objects out of later garbage collections, except the collection of the next call.

    A model and its libraries are a million objects. Each collection would stop all threads for 0.25 s during searches.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@functools.cache
def _trim() -> Callable[[int], int] | None:
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL("libc.so.6").malloc_trim
    return None
