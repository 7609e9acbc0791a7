"""Columns of every parquet file, in one place."""

from collections.abc import Mapping

import pyarrow as pa

from rayhier.spec.corpus import FieldType

DOCUMENTS = pa.schema([("doc_id", pa.string()), ("title", pa.string()), ("text", pa.string())])
PARENT = pa.field("parent", pa.string())
"""Of a passage: the document it was cut from."""
FIELDS = {"int": pa.int64(), "float": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
QUERIES = pa.schema([("query_id", pa.string()), ("text", pa.string())])
JUDGEMENTS = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("grade", pa.int32())])
"""Where the corpus has passages, `doc_id` is a passage's parent."""
REJECTED = pa.schema([("source", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("value", pa.string())])
"""Of rows that are not in the corpus; `value` is how the row begins."""


def documents(fields: Mapping[str, FieldType], passages: bool) -> pa.Schema:
    """DOCUMENTS, `parent` where they are passages, and the declared fields, which may be null."""
    declared = [pa.field(name, FIELDS[kind]) for name, kind in fields.items()]
    return pa.schema([*DOCUMENTS, *([PARENT] if passages else []), *declared])


def carried(documents: pa.Schema) -> pa.Schema:
    """What later stages carry along beside id, title and text: `parent` and declared fields."""
    return pa.schema([field for field in documents if field.name not in DOCUMENTS.names])


def vectors(key: str, dimension: int) -> pa.Schema:
    """Base encoder's vectors by `doc_id` or `query_id`: float32 [dimension]."""
    return pa.schema([(key, pa.string()), ("vector", pa.list_(pa.float32(), dimension))])


def leaf_map(dimension: int, precision: str, documents: pa.Schema = DOCUMENTS) -> pa.Schema:
    """Rows of the leaf map: `leaves` best first, `rank` the place of `leaf` among them; what documents carry last."""
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
            *carried(documents),
        ]
    )


IDS = pa.schema([("doc_id", pa.string())])
"""Of documents that a version of the leaf map removes."""
LEAVES = pa.schema([("level", pa.int8()), ("node", pa.int32()), ("size", pa.int64())])
