"""Load pseudo-queries (titles and spans of documents) as arrays, from the vectors artifact."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.holdout import holdout_rows
from rayhier.dataset.queries import Queries
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact

FOLDER = "spans/"


@dataclass(frozen=True)
class Spans:
    """Pseudo-queries, in the order of their documents: base vectors [p, m], row [p] of the document, and text."""

    vector_PM: Floats
    row_P: Ints
    texts: pa.ChunkedArray

    def __len__(self) -> int:
        return len(self.row_P)

    def __getitem__(self, kept: Bools) -> "Spans":
        return Spans(self.vector_PM[kept], self.row_P[kept], self.texts.filter(pa.array(kept)))


def load_spans(vectors: Artifact, ids: Sequence[str]) -> Spans | None:
    """Load the pseudo-queries of the documents with given ids, which must be in the order of the corpus."""
    if not vectors.names(FOLDER):
        return None
    wanted = pa.array(ids, pa.string())
    parts = (columns.read([vectors.path(name)], ["doc_id", "text", "vector"]) for name in vectors.names(FOLDER))
    table = pa.concat_tables(part.filter(pc.is_in(part["doc_id"], wanted)) for part in parts)
    row_P = pc.index_in(table["doc_id"], wanted).combine_chunks().to_numpy(zero_copy_only=False).astype(np.int64)
    return Spans(columns.matrix(table["vector"]), row_P, table["text"])


def span_queries(spans: Spans, ids: Sequence[str], results: Sequence[str]) -> tuple[Queries, Spans]:
    """Split off the pseudo-queries of held-out documents as dev queries. Returns these queries, and the other spans.

    A hash of the ids holds out a tenth of the documents with pseudo-queries, at most 1,000. `results` are the documents
    of the rows: passages of one document stay together. If no other span is left, both have all pseudo-queries.
    """
    result_P = [results[row] for row in spans.row_P]
    holdout = list(dict.fromkeys(result_P))
    held_out = {holdout[row] for row in holdout_rows(holdout)}
    held_out_P = np.array([name in held_out for name in result_P])
    held_out_spans = spans[held_out_P]
    names = [f"{ids[row]}#{number}" for number, row in enumerate(held_out_spans.row_P)]
    grades = {name: {results[row]: 1} for name, row in zip(names, held_out_spans.row_P, strict=True)}
    queries = Queries(names, held_out_spans.vector_PM, grades, held_out_spans.texts.to_pylist())
    return queries, spans if held_out_P.all() else spans[~held_out_P]
