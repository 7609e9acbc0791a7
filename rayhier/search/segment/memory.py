"""Memory that was freed goes back to the system, and what stays is looked at no more."""

import contextlib
import ctypes
import functools
import gc
from collections.abc import Callable

import pyarrow as pa


def give_back() -> None:
    """Give memory that this process freed back to the system; glibc keeps what other threads' arenas have free.

    Arrow's pool keeps its own. A process that opens version after version would else grow to several times what it
    uses. Where the C library is another than glibc, only Arrow's is given back.
    """
    pa.default_memory_pool().release_unused()
    trim = _trim()
    if trim is not None:
        trim(0)


def settle() -> None:
    """Leave all objects that are alive now out of later collections of garbage; those of an earlier call are looked at.

    A model and the libraries that load it are a million objects: to look at them stops all threads for .25 s, at a
    moment that searches cannot choose.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@functools.cache
def _trim() -> Callable[[int], int] | None:
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL("libc.so.6").malloc_trim
    return None
