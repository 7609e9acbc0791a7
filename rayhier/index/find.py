"""Find the rows of documents by id, by reading the column of ids, shard by shard."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.storage.leaf_map import LeafMap

FOUND = pa.schema([("id", pa.string()), ("leaf", pa.int32()), ("rank", pa.int8())])


def find(leaf_map: LeafMap, ids: pa.Array) -> pa.Table:
    """Find the rows of the documents with these ids, in columns `id`, `leaf`, `rank`, without removed rows.

    Memory holds the ids of one shard at a time.
    """
    none = pa.table([[], [], []], schema=FOUND)
    return pa.concat_tables([none, *(table.filter(pc.is_in(table["id"], ids)) for table in scan(leaf_map))])


def scan(leaf_map: LeafMap) -> Iterator[pa.Table]:
    """Yield the rows of all documents, columns `id`, `leaf` and `rank`, shard by shard; empty shards are left out."""
    for shard in leaf_map.manifest.shards:
        if shard.rows:
            table = leaf_map.read(shard, [leaf_map.key(shard), "leaf", "rank"], verify=False)
            yield table.rename_columns(FOUND.names)


def unknown(rows: pa.Table, ids: pa.Array) -> list[str]:
    """List the `ids` that have no row in `rows`, a table made by `find`."""
    missing: list[str] = ids.filter(pc.invert(pc.is_in(ids, rows["id"].combine_chunks()))).to_pylist()
    return missing


def per_leaf(rows: pa.Table, leaves: int) -> np.ndarray:
    """Count the rows [leaves] of a table made by `find` in each leaf."""
    return np.bincount(rows["leaf"].to_numpy(), minlength=leaves)
