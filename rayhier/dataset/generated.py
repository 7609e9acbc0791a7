"""Generated queries with their documents and base vectors, read from published artifacts."""

import numpy as np
import pyarrow.compute as pc

from rayhier.dataset.holdout import holdout_rows
from rayhier.dataset.queries import Queries
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact

VECTORS = "generated.parquet"


def split_generated(queries: Queries) -> tuple[Queries, Queries]:
    """Split generated queries by a hash: a tenth, at most 1,000, becomes dev. If dev takes all, train has all too."""
    is_dev = np.zeros(len(queries), dtype=bool)
    is_dev[holdout_rows(queries.ids)] = True
    return queries.some(is_dev), queries if is_dev.all() else queries.some(~is_dev)


def load_generated(generated: Artifact, vectors: Artifact) -> Queries:
    pairs = columns.read([generated.path("pairs.parquet")], ["query_id", "doc_id"])
    grades: dict[str, dict[str, int]] = {}
    for query, document in zip(*(pairs[name].to_pylist() for name in pairs.column_names), strict=True):
        grades.setdefault(query, {})[document] = 1
    table = columns.read([vectors.path(VECTORS)], ["query_id", "vector"])
    texts = columns.read([generated.path("queries.parquet")], ["query_id", "text"])
    query_texts = texts["text"].take(pc.index_in(table["query_id"], texts["query_id"].combine_chunks()))
    return Queries(table["query_id"].to_pylist(), columns.matrix(table["vector"]), grades, query_texts.to_pylist())
