"""Sets of ids, kept as hashes (digests) of 16 bytes each, so that the ids of a large corpus fit in memory."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayhier.corpus.row_checks import DIGEST_BYTES, digest
from rayhier.storage import columns, parquet, schemas
from rayhier.storage.artifact import Artifact

Digests = npt.NDArray[np.bytes_]
"""Array [n] of digests, dtype S16. numpy strips zero bytes from the end of an element that is read alone."""

DIGEST = pa.binary(DIGEST_BYTES)
NO_DIGESTS: Digests = np.empty(0, f"S{DIGEST_BYTES}")


def of(names: Iterable[str]) -> Digests:
    return np.array([digest(name) for name in names], NO_DIGESTS.dtype)


def of_documents(corpus: Artifact) -> Iterator[str]:
    """Yield the ids of documents as judgements name them. These are never ids of passages."""
    for name in corpus.names("documents/"):
        path = corpus.path(name)
        is_cut = schemas.PARENT.name in parquet.metadata(path).schema.to_arrow_schema().names
        key = schemas.PARENT.name if is_cut else "doc_id"
        yield from columns.read([path], [key])[key].unique().to_pylist()


def array(column: pa.ChunkedArray) -> Digests:
    """Convert a column of fixed-size binary values without nulls to digests [n]."""
    flats = [
        np.frombuffer(chunk.buffers()[1], NO_DIGESTS.dtype)[chunk.offset :][: len(chunk)] for chunk in column.chunks
    ]
    return np.concatenate([NO_DIGESTS, *flats])


def later(digests: Digests) -> npt.NDArray[np.intp]:
    """Return the positions, ascending, of digests that also occur at an earlier position.

    >>> later(np.array([b"a", b"b", b"a"], "S16"))
    array([2])
    """
    order = np.argsort(digests, kind="stable")
    ranked = digests[order]
    return np.sort(order[1:][ranked[1:] == ranked[:-1]])


class IdSet:
    def __init__(self, digests: Digests) -> None:
        self._sorted = np.sort(digests)

    def __contains__(self, key: Any) -> bool:
        probe = np.array([digest(key)], dtype=self._sorted.dtype)
        place = int(np.searchsorted(self._sorted, probe)[0])
        return bool((self._sorted[place : place + 1] == probe).any())
