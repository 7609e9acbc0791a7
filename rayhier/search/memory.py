"""Memory that was freed goes back to the system."""

import contextlib
import ctypes
import functools
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


@functools.cache
def _trim() -> Callable[[int], int] | None:
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL("libc.so.6").malloc_trim
    return None
