"""Schemas (names and types of columns) of all parquet files that rayhier writes."""

from collections.abc import Mapping

import pyarrow as pa
import Stemmer

from rayhier.spec.corpus import FieldType, Language
from rayhier.storage.columns import VectorType

DOCUMENTS = pa.schema([("doc_id", pa.string()), ("title", pa.string()), ("text", pa.string())])
PARENT = pa.field("parent", pa.string())
"""Column of passages: id of the document that a passage was cut from."""
FIELDS = {"int": pa.int64(), "float": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
QUERIES = pa.schema([("query_id", pa.string()), ("text", pa.string())])
JUDGEMENTS = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("grade", pa.int32())])
"""Columns of judgements. In a corpus of passages, `doc_id` is the id of a whole document."""
PAIRS = pa.schema([("query_id", pa.string()), ("doc_id", pa.string())])
"""Columns of generated pairs: a query and its document. `doc_id` is never the id of a passage."""
REJECTED = pa.schema([("source", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("value", pa.string())])
"""Columns of the source's rejected rows: file, row number, reason, and the beginning of the row as `value`."""


def documents(fields: Mapping[str, FieldType], passages: bool) -> pa.Schema:
    declared = [pa.field(name, FIELDS[kind]) for name, kind in fields.items()]
    return pa.schema([*DOCUMENTS, *([PARENT] if passages else []), *declared])


def carried(documents: pa.Schema) -> pa.Schema:
    """Return the columns of documents that later stages keep in addition to id, title and text."""
    return pa.schema([field for field in documents if field.name not in DOCUMENTS.names])


def vectors(key: str, dimension: int) -> pa.Schema:
    return pa.schema([(key, pa.string()), ("vector", VectorType(pa.float32(), dimension))])


def spans(dimension: int) -> pa.Schema:
    drawn = [("doc_id", pa.string()), ("text", pa.string())]
    return pa.schema([*drawn, ("vector", VectorType(pa.float32(), dimension))])


def leaf_map(dimension: int, precision: str, documents: pa.Schema = DOCUMENTS) -> pa.Schema:
    """Make the schema of leaf files' rows. A row's `leaf` is element `rank` of its document's `leaves`."""
    value = {"float16": pa.float16(), "float32": pa.float32()}[precision]
    return pa.schema(
        [
            ("doc_id", pa.string()),
            ("leaf", pa.int32()),
            ("rank", pa.int8()),
            ("leaves", pa.list_(pa.int32())),
            ("log_prob", pa.float32()),
            ("vector", VectorType(value, dimension)),
            ("title", pa.string()),
            ("text", pa.string()),
            *carried(documents),
        ]
    )


NODES = "nodes"
"""Sidecar with the probabilities of a document's leaves in ReTreever's tree, float16 [leaves]."""
POSTINGS = pa.schema([("word", pa.string()), ("rows", pa.list_(pa.int32())), ("counts", pa.list_(pa.int32()))])
"""Columns of a shard's postings: a word, the first rows of documents that have it, and how often each has it."""
WORDS_RULE, SNOWBALL = "3", Stemmer.version().rpartition(".")[0]
"""Number of the rule that splits texts into words, and version of Snowball's stemmers, which decides on the stems."""
RULE = b"rayhier.words"


def rule(language: Language) -> str:
    """Name the rule that splits texts into words. The name has the stemmer's version if words are stemmed."""
    return WORDS_RULE if language == "none" else f"{WORDS_RULE} Snowball {SNOWBALL}"


def rule_of(postings: pa.Schema) -> str:
    metadata: dict[bytes, bytes] = postings.metadata or {}
    return metadata.get(RULE, b"1").decode()


IDS = pa.schema([("doc_id", pa.string())])
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
"""Columns of the nodes of the tree that people look at, level by level. A node's `parent` is in the level above."""
