"""Shards (files of rows with their sidecars and postings) and files of removed ids, as manifests list them."""

import base64
import zlib
from bisect import bisect_left
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, PlainSerializer, WrapValidator

from rayhier.storage.files import File

FEWEST_PACKED = 1_000


class Sidecar(BaseModel, frozen=True, extra="forbid"):
    """A parquet file with another column of a shard's rows, in the same order. null in a document's second row."""

    file: File
    maker: str
    """Fingerprint of the model that computed the values."""


def _packed(numbers: list[int]) -> list[int] | str:
    """Return a few ascending numbers unchanged, and many as a compressed text of their differences."""
    if len(numbers) < FEWEST_PACKED:
        return numbers
    differences = np.diff(np.array(numbers, np.int64), prepend=0).astype("<i4")
    return base64.b64encode(zlib.compress(differences.tobytes(), 1)).decode()


def _unpacked(entry: Any, validate: Callable[[Any], list[int]]) -> list[int]:
    if not isinstance(entry, str):
        return validate(entry)
    try:
        differences = np.frombuffer(zlib.decompress(base64.b64decode(entry, validate=True)), "<i4")
    except (ValueError, zlib.error) as error:
        raise ValueError(f"numbers: {error}") from None
    numbers: list[int] = np.cumsum(differences, dtype=np.int64).tolist()
    return numbers


Ascending = Annotated[list[int], WrapValidator(_unpacked), PlainSerializer(_packed, when_used="json")]
"""Ascending numbers. Many numbers are stored as a compressed text, because every manifest lists all shards."""


class Shard(BaseModel, frozen=True, extra="forbid"):
    """A parquet file of rows sorted by leaf. No row group ends inside a leaf."""

    file: File
    rows: int
    documents: int
    """Number of documents whose first (most probable) leaf is in this file."""
    leaves: Ascending
    offsets: Ascending
    """Position of the first row of each leaf in `leaves`, then the number of rows."""
    log_prob: float
    """Mean log-probability of a document's first leaf, over the shard's `documents`. 0 without documents."""
    since: int = 1
    """Version that added this file. Only removals of later versions act on its rows."""
    sidecars: dict[str, Sidecar] = {}
    postings: File | None = None
    """Parquet file of the shard's words, with the columns `schemas.POSTINGS`. None if words were not counted."""

    @property
    def files(self) -> list[File]:
        postings = [] if self.postings is None else [self.postings]
        return [self.file, *(sidecar.file for sidecar in self.sidecars.values()), *postings]

    def within(self, leaves: range) -> tuple[int, int]:
        """Return the positions [first, last) in this file of the rows that lie in a range of leaves."""
        begin, end = (bisect_left(self.leaves, leaf) for leaf in (leaves.start, leaves.stop))
        return self.offsets[begin], self.offsets[end]


class Removal(BaseModel, frozen=True, extra="forbid"):
    """A parquet file of the ids of documents that a version removed."""

    file: File
    ids: int
    rows: int
    """Number of rows that the removal took from the leaf map."""
    since: int
    """Version that removed the ids. Only older shards are affected, so an id can be added again."""
