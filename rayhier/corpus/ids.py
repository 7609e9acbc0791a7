"""Sets of ids held as 16-byte digests: 16 bytes a document is all that the driver keeps of a corpus."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayhier.corpus.check import DIGEST_BYTES, digest

Digests = npt.NDArray[np.bytes_]
"""[n] digests, dtype S16: numpy drops trailing zero bytes only where it hands one out, never when comparing."""

DIGEST = pa.binary(DIGEST_BYTES)
NONE: Digests = np.empty(0, f"S{DIGEST_BYTES}")


def array(column: pa.ChunkedArray) -> Digests:
    """A fixed-size binary column without nulls as [n] digests."""
    chunks = [_chunk(chunk) for chunk in column.chunks]
    return np.concatenate([NONE, *chunks])


def later(digests: Digests) -> npt.NDArray[np.intp]:
    """Positions, ascending, of every digest that stands at an earlier position too.

    >>> later(np.array([b"a", b"b", b"a"], "S16"))
    array([2])
    """
    order = np.argsort(digests, kind="stable")
    ranked = digests[order]
    return np.sort(order[1:][ranked[1:] == ranked[:-1]])


class Known:
    """`key in known` for the ids of these digests, in log n."""

    def __init__(self, digests: Digests) -> None:
        self._sorted = np.sort(digests)

    def __contains__(self, key: Any) -> bool:
        probe = np.array([digest(key)], dtype=self._sorted.dtype)
        place = int(np.searchsorted(self._sorted, probe)[0])
        return bool((self._sorted[place : place + 1] == probe).any())


def _chunk(chunk: pa.Array) -> Digests:
    flat = np.frombuffer(chunk.buffers()[1], dtype=f"S{DIGEST_BYTES}")
    return flat[chunk.offset : chunk.offset + len(chunk)]
