"""Columns of every parquet file, in one place."""

import pyarrow as pa

DOCUMENTS = pa.schema([("doc_id", pa.string()), ("title", pa.string()), ("text", pa.string())])
QUERIES = pa.schema([("query_id", pa.string()), ("text", pa.string())])
JUDGEMENTS = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("grade", pa.int32())])
REJECTED = pa.schema([("source", pa.string()), ("row", pa.int64()), ("reason", pa.string())])


def vectors(key: str, dimension: int) -> pa.Schema:
    """Base encoder's vectors by `doc_id` or `query_id`: float32 [dimension]."""
    return pa.schema([(key, pa.string()), ("vector", pa.list_(pa.float32(), dimension))])


def leaf_map(dimension: int, precision: str) -> pa.Schema:
    """Rows of the leaf map: `leaves` best first, `rank` the place of `leaf` among them."""
    value = {"float16": pa.float16(), "float32": pa.float32()}[precision]
    return pa.schema(
        [
            ("doc_id", pa.string()),
            ("leaf", pa.int32()),
            ("rank", pa.int8()),
            ("leaves", pa.list_(pa.int32())),
            ("log_prob", pa.float32()),
            ("vector", pa.list_(value, dimension)),
            ("title", pa.string()),
            ("text", pa.string()),
        ]
    )


LEAVES = pa.schema([("level", pa.int8()), ("node", pa.int32()), ("size", pa.int64())])
