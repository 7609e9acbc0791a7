"""Leaf maps that tests write by hand."""

import numpy as np
import pyarrow as pa

from rayhier.storage import columns, schemas
from rayhier.storage.leaf_map import LeafMap

DECLARED = {"year": pa.field("year", pa.int64()), "parent": schemas.PARENT}


def leaf_rows(leaves, vector_NM, **others):
    """Rows of documents that lie in these leaves each, sorted by leaf; `others` are the columns by document."""
    rows = sorted(
        ((n, leaf, rank) for n, own in enumerate(leaves) for rank, leaf in enumerate(own)), key=lambda r: r[1]
    )
    numbers = [n for n, _, _ in rows]
    declared = [field for name, field in DECLARED.items() if name in others]
    schema = schemas.leaf_map(vector_NM.shape[1], "float16", pa.schema([*schemas.DOCUMENTS, *declared]))
    others.setdefault("title", [""] * len(leaves))
    table = pa.table(
        {
            "leaf": [leaf for _, leaf, _ in rows],
            "rank": [rank for _, _, rank in rows],
            "leaves": [leaves[n] for n in numbers],
            "log_prob": np.zeros(len(rows)),
            "vector": columns.vector_column(vector_NM[numbers], pa.float16()),
            **{name: [values[n] for n in numbers] for name, values in others.items()},
        }
    )
    return table.select(schema.names).cast(schema)


def leaf_map_of_rows(root, write_map, table, n_leaves, shards=2):
    """Write rows as a leaf map, and open it."""
    write_map(root, table, n_leaves, shards, leaves_per_document=max(map(len, table["leaves"].to_pylist())))
    return LeafMap.open(root)
