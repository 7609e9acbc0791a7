"""One part of the corpus, routed: each document with its trained vector and its leaf."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from rayhier.model.encoder import ResidualHead, load_head
from rayhier.model.router import Router, load_router, route_all
from rayhier.search.lists import Ints
from rayhier.storage import columns, schemas
from rayhier.storage.artifact import Artifact


class Assigner:
    """A trained model that puts documents into leaves."""

    def __init__(self, model: Artifact, precision: str) -> None:
        self.router: Router = load_router(model.path("router"))
        self.head: ResidualHead | None = load_head(model.path("encoder"))
        self.precision = precision

    def __call__(self, documents: pa.Table, vectors: pa.Table) -> pa.Table:
        """Rows of the leaf map, sorted by leaf then id, for one part's documents and base vectors.

        Raises ValueError where the two are not the same documents in the same order.
        """
        if not documents["doc_id"].equals(vectors["doc_id"]):
            raise ValueError("documents and vectors of a part are not the same ids in the same order")
        with torch.inference_mode():
            base_NM = torch.from_numpy(np.array(columns.matrix(vectors["vector"])))
            trained_NM = base_NM if self.head is None else self.head(base_NM)
            leaves_NR, log_prob_NR = route_all(self.router, trained_NM, beam=1)
        leaf_N = leaves_NR[:, 0].numpy().astype(np.int32)
        schema = schemas.leaf_map(trained_NM.shape[1], self.precision, documents.schema)
        table = pa.table(
            [
                documents["doc_id"],
                pa.array(leaf_N),
                pa.array(np.zeros(len(leaf_N), np.int8)),
                pa.ListArray.from_arrays(np.arange(len(leaf_N) + 1, dtype=np.int32), pa.array(leaf_N)),
                pa.array(log_prob_NR[:, 0].numpy().astype(np.float32)),
                columns.vector_column(trained_NM.numpy(), schema.field("vector").type.value_type),
                documents["title"],
                documents["text"],
                *(documents[name] for name in schemas.carried(documents.schema).names),
            ],
            schema=schema,
        )
        return table.sort_by([("leaf", "ascending"), ("doc_id", "ascending")])


def leaf_counts(leaf_N: Ints, leaves: int) -> list[int]:
    """Documents of each leaf."""
    counts: list[int] = np.bincount(leaf_N, minlength=leaves).tolist()
    return counts


def read_part(corpus: Path, vectors: Path) -> tuple[pa.Table, pa.Table]:
    """A part's documents, with all they carry, and base vectors."""
    return pq.read_table(corpus), columns.read([vectors], ["doc_id", "vector"])
