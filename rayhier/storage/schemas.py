"""Schemas (columns and types) of every parquet file."""

from collections.abc import Mapping

import pyarrow as pa

from rayhier.spec.corpus import FieldType

DOCUMENTS = pa.schema([("doc_id", pa.string()), ("title", pa.string()), ("text", pa.string())])
PARENT = pa.field("parent", pa.string())
"""Column of passages: id of the document that the passage was cut from."""
FIELDS = {"int": pa.int64(), "float": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
QUERIES = pa.schema([("query_id", pa.string()), ("text", pa.string())])
JUDGEMENTS = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("grade", pa.int32())])
"""Judgements; in a corpus of passages, `doc_id` is the id of a passage's parent."""
PAIRS = pa.schema([("query_id", pa.string()), ("doc_id", pa.string())])
"""Generated queries and their documents; `doc_id` is a passage's parent, as in judgements."""
REJECTED = pa.schema([("source", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("value", pa.string())])
"""Rejected rows of the source, with reasons; `value` is the beginning of the row."""


def documents(fields: Mapping[str, FieldType], passages: bool) -> pa.Schema:
    """Make the schema of documents: DOCUMENTS, `parent` for passages, and the declared fields, which may be null."""
    declared = [pa.field(name, FIELDS[kind]) for name, kind in fields.items()]
    return pa.schema([*DOCUMENTS, *([PARENT] if passages else []), *declared])


def carried(documents: pa.Schema) -> pa.Schema:
    """Return the columns that later stages keep besides id, title and text: `parent` and declared fields."""
    return pa.schema([field for field in documents if field.name not in DOCUMENTS.names])


def vectors(key: str, dimension: int) -> pa.Schema:
    """Make the schema of the base encoder's vectors, float32 [dimension]; `key` is `doc_id` or `query_id`."""
    return pa.schema([(key, pa.string()), ("vector", pa.list_(pa.float32(), dimension))])


def spans(dimension: int) -> pa.Schema:
    """Make the schema of pseudo-queries: document, text, and the base encoder's vector, float32 [dimension]."""
    drawn = [("doc_id", pa.string()), ("text", pa.string())]
    return pa.schema([*drawn, ("vector", pa.list_(pa.float32(), dimension))])


def leaf_map(dimension: int, precision: str, documents: pa.Schema = DOCUMENTS) -> pa.Schema:
    """Make the schema of the leaf map: a document's `leaves`, best first, `rank` of the row's `leaf`; fields last."""
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


NODES = "nodes"
"""Sidecar of the probabilities of ReTreever's leaves, float16 [leaves], as `model.retreever.stored` makes them."""
IDS = pa.schema([("doc_id", pa.string())])
"""Ids of documents that a version of the leaf map removes."""
WORDS = pa.list_(pa.string())
LEAVES = pa.schema(
    [
        ("level", pa.int8()),
        ("node", pa.int32()),
        ("parent", pa.int32()),
        ("size", pa.int64()),
        ("keywords", WORDS),
        ("documents", WORDS),
    ]
)
"""Nodes of the tree that people look at, level by level, top down; a node's `parent` is a node of the level above."""
