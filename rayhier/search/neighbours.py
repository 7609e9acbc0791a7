"""The documents of an index as queries, to find the nearest neighbours of each: `rayhier search WORKDIR --documents`.

A document's query is its stored vector. Documents come in the order of their leaves, so that those of a chunk visit few
leaves, which faiss reads once for all of them.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rayhier.search.query_files import Chunk, Refused
from rayhier.storage import columns
from rayhier.storage.leaf_map import LeafMap

CHUNK = 4_096
"""Documents whose neighbours are searched together."""


class IndexDocuments:
    """All documents of a version of an index, each once; of passages, every passage."""

    def __init__(self, leaf_map: LeafMap) -> None:
        self._leaf_map = leaf_map

    @property
    def size(self) -> int:
        """Number of documents of a chunk; the last of each shard may have fewer."""
        return CHUNK

    @property
    def digest(self) -> str:
        """Text that stands for the queries in the ledger; which documents they are, the index's version tells."""
        return "documents of the index"

    def __str__(self) -> str:
        """Name what is read."""
        return self.digest

    def __len__(self) -> int:
        """Count the documents."""
        return self._leaf_map.manifest.documents

    def chunks(self, refused: Refused) -> Iterator[Chunk]:  # noqa: ARG002  no document is refused
        """Yield the documents, a shard in memory at a time; InputError where a file is not as published."""
        for shard in self._leaf_map.manifest.shards:
            key = self._leaf_map.key(shard)
            names = list(dict.fromkeys(["doc_id", key]))
            rows = self._leaf_map.read(shard, [*names, "rank", "vector"])
            first_N, vector_NM = np.flatnonzero(rows["rank"].to_numpy() == 0), columns.as_stored(rows["vector"])
            rows = rows.select(names)  # its vectors are no longer in memory twice
            for begin in range(0, len(first_N), CHUNK):
                row_A = first_N[begin : begin + CHUNK]
                some, query_AM = rows.take(pa.array(row_A)), vector_NM[row_A].astype(np.float32)
                yield Chunk(some["doc_id"].to_pylist(), [(np.arange(len(row_A)), query_AM)], some[key].to_pylist())
