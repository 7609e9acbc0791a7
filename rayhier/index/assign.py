"""Make rows of the leaf map from documents and their trained vectors. A document lies in one or two leaves."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats, Ints
from rayhier.index.shards import sidecar
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import OpenedRouter, Tree
from rayhier.model.placing import place
from rayhier.spec import InputError, JobSpec
from rayhier.spec.index import VectorFormat
from rayhier.storage import columns, parquet, schemas
from rayhier.storage.paths import Location

ORDER = [("leaf", "ascending"), ("doc_id", "ascending")]
IDS_SHOWN = 5
PLACED = ("leaf", "rank", "leaves", "log_prob", "vector")


class Assigner:
    """Routes documents to leaves by a trained router, with the spec's rule for second leaves and vector format."""

    def __init__(self, router: OpenedRouter, spec: JobSpec, model: str = "") -> None:
        self.model, self.tree = model, router if isinstance(router, Tree) else None
        self.router, self.precision = router, spec.index.vectors
        self.leaves = spec.leaves_per_document

    def __call__(self, documents: pa.Table, encoded: Encoded) -> pa.Table:
        """Make rows of documents, sorted by leaf and id. InputError for NaN, or if the router needs tokens of texts."""
        vector_NM = encoded.numpy
        if self.router.reader is not None and encoded.token_scores is None:
            raise InputError("vector: got vectors, but this router reads tokens; allowed: documents as texts")
        check_numbers(documents["doc_id"], vector_NM, self.precision)
        leaf_NR, log_prob_NR = place(self.router, encoded, self.leaves)
        two_N = leaf_NR[:, 0] != leaf_NR[:, -1]
        row_A = np.concatenate([np.arange(len(leaf_NR)), np.flatnonzero(two_N)])
        rank_A = np.repeat([0, 1], [len(leaf_NR), two_N.sum()]).astype(np.int8)
        schema = schemas.leaf_map(vector_NM.shape[1], self.precision, documents.schema)
        value = schema.field("vector").type.value_type
        rows = documents.take(pa.array(row_A))
        assigned = {
            "leaf": pa.array(leaf_NR[row_A, rank_A], pa.int32()),
            "rank": pa.array(rank_A),
            "leaves": leaves_column(leaf_NR[row_A], two_N[row_A]),
            "log_prob": pa.array(log_prob_NR[row_A, rank_A], pa.float32()),
            "vector": columns.vector_column(vector_NM[row_A], value),
        }
        arrays = [assigned[name] if name in assigned else rows[name] for name in schema.names]
        table = pa.table(arrays, schema=schema)
        if self.tree is not None:
            nodes_NL = self.tree.leaves(encoded)
            values = columns.vector_column(nodes_NL[row_A], pa.float16(), rank_A == 0)
            table = table.append_column(sidecar(schemas.NODES, values.type, self.model), values)
        return table.sort_by(ORDER)

    def again(self, rows: pa.Table) -> pa.Table:
        """Choose leaves again for the documents of some rows. Returns a row for each document and leaf."""
        first = rows.filter(pc.equal(rows["rank"], 0))
        documents = first.drop_columns([name for name in PLACED if name in first.column_names])
        return self(documents, Encoded(columns.matrix(first["vector"])))


def leaves_column(leaf_NR: Ints, two_N: np.ndarray) -> pa.ListArray:
    """Make the column `leaves` of first and second leaves [n, 2]. If `two_N` [n] is False, there is no second leaf."""
    has_NR = np.ones(leaf_NR.shape, dtype=bool)
    has_NR[:, 1:] = two_N[:, None]
    ends = np.concatenate([[0], np.cumsum(has_NR.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(ends, pa.array(leaf_NR[has_NR], pa.int32()))


def check_numbers(ids: pa.ChunkedArray, vector_NM: Floats, precision: VectorFormat = "float32") -> None:
    """Raise InputError if a vector holds NaN, or a number that is infinity in the format `precision`."""
    most = float(np.finfo(precision).max)
    bad = np.flatnonzero(~(np.abs(vector_NM) <= most).all(axis=1))
    if len(bad):
        shown = ", ".join(repr(ids[row].as_py()) for row in bad[:IDS_SHOWN].tolist())
        problem = f"vectors: got {len(bad)} of {len(vector_NM)} with NaN, infinity or too large a number: {shown}"
        raise InputError(f"{problem}; allowed: numbers of at most {most:g}, the limit of {precision}")


def leaf_sizes(rows: pa.Table, leaves: int) -> Ints:
    return np.bincount(rows["leaf"].to_numpy(), minlength=leaves)


def read_part(corpus: Location, vectors: Location) -> tuple[pa.Table, Floats]:
    """Read the documents of a part of the corpus, and their base vectors [n, m]. ValueError if the ids differ."""
    documents, stored = parquet.read(corpus), columns.read([vectors], ["doc_id", "vector"])
    if not documents["doc_id"].equals(stored["doc_id"]):
        raise ValueError("documents and vectors of a part do not have the same ids in the same order")
    return documents, columns.matrix(stored["vector"])
