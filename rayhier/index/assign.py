"""One part of the corpus, routed: each document with its trained vector and its leaf, or its two."""

import numpy as np
import pyarrow as pa
import torch

from rayhier.cluster.spill import Spill, second_leaves
from rayhier.embed.encode import document_texts
from rayhier.embed.trained import TrainedEncoder
from rayhier.model.router import Router, load_router, place_all
from rayhier.search.lists import Ints
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage import columns, files, schemas
from rayhier.storage.artifact import Artifact
from rayhier.storage.columns import Floats
from rayhier.storage.paths import Location

LOG_PROBS = "#log_probs"
"""A name that no declared field can have."""
ORDER = [("leaf", "ascending"), ("doc_id", "ascending")]


class Assigner:
    """A trained model that puts documents into leaves."""

    def __init__(self, model: Artifact, encoder: EncoderSpec, precision: str, candidates: int = 1) -> None:
        self.router: Router = load_router(model.local("router"))
        self.encode = TrainedEncoder.open(model, encoder)
        self.precision = precision
        self.candidates = candidates

    def __call__(self, documents: pa.Table, vectors: pa.Table) -> pa.Table:
        """Rows of the leaf map, sorted by leaf then id, for one part's documents and base vectors.

        With several candidates `leaves` lists them, best first, beside a column of their `log_probs`: see `spread`.
        Raises ValueError where the two are not the same documents in the same order.
        """
        if not documents["doc_id"].equals(vectors["doc_id"]):
            raise ValueError("documents and vectors of a part are not the same ids in the same order")
        trained_NM = self.encode(np.array(columns.matrix(vectors["vector"])), lambda: document_texts(documents))
        leaves_NR, log_prob_NR = place_all(self.router, torch.from_numpy(trained_NM), self.candidates)
        leaf_NR = leaves_NR.numpy().astype(np.int32)
        leaf_N = leaf_NR[:, 0]
        schema = schemas.leaf_map(trained_NM.shape[1], self.precision, documents.schema)
        table = pa.table(
            [
                documents["doc_id"],
                pa.array(leaf_N),
                pa.array(np.zeros(len(leaf_N), np.int8)),
                lists(leaf_NR),
                pa.array(log_prob_NR[:, 0].numpy().astype(np.float32)),
                columns.vector_column(trained_NM, schema.field("vector").type.value_type),
                documents["title"],
                documents["text"],
                *(documents[name] for name in schemas.carried(documents.schema).names),
            ],
            schema=schema,
        )
        if self.candidates > 1:
            table = table.append_column(LOG_PROBS, lists(log_prob_NR.numpy().astype(np.float32)))
        return table.sort_by(ORDER)


def spread(
    routed: pa.Table,
    centroids_LM: Floats,
    spill: Spill,
    price_L: Floats | None = None,
    border: float | None = None,
) -> pa.Table:
    """A row for each document of a routed part in its best leaf, and one in the candidate that `spill` chooses.

    With a `border`, only documents near one have the second: see `second_leaves`.
    """
    leaf_NC, log_prob_NC = (_matrix(routed[name]) for name in ("leaves", LOG_PROBS))
    place_N = second_leaves(columns.matrix(routed["vector"]), leaf_NC, centroids_LM, spill, price_L, border)
    n = np.arange(len(place_N))
    pair_N2 = np.stack([leaf_NC[:, 0], leaf_NC[n, place_N]], axis=1)
    has_N2 = np.stack([np.ones(len(n), bool), place_N > 0], axis=1)
    ends = np.concatenate([[0], np.cumsum(has_N2.sum(axis=1))]).astype(np.int32)
    leaves = pa.ListArray.from_arrays(ends, pa.array(pair_N2[has_N2].astype(np.int32)))
    plain = _with(routed.drop_columns([LOG_PROBS]), "leaves", leaves)
    ranks = []
    for rank, place in enumerate((np.zeros_like(place_N), place_N)):
        table = _with(plain, "leaf", pa.array(leaf_NC[n, place], pa.int32()))
        table = _with(table, "rank", pa.array(np.full(len(n), rank, np.int8)))
        table = _with(table, "log_prob", pa.array(log_prob_NC[n, place], pa.float32()))
        ranks.append(table.filter(pa.array(place_N > 0)) if rank else table)
    return pa.concat_tables(ranks).sort_by(ORDER)


class LeafMeans:
    """Unit means of the trained vectors of each leaf, from as many routed parts as are shown."""

    def __init__(self, leaves: int, dimension: int) -> None:
        self._sum_LM = np.zeros((leaves, dimension), dtype=np.float64)
        self.rows = 0

    def add(self, vectors_NM: Floats, leaf_N: Ints) -> None:
        """Count vectors [n, m] of these leaves in."""
        np.add.at(self._sum_LM, leaf_N, vectors_NM)
        self.rows += len(leaf_N)

    def means(self) -> Floats:
        """[leaves, m]; zero for a leaf that holds none."""
        length_L1 = np.linalg.norm(self._sum_LM, axis=1, keepdims=True)
        return np.asarray(self._sum_LM / np.maximum(length_L1, 1e-12), dtype=np.float32)


def lists(values_NR: np.ndarray) -> pa.ListArray:
    """[n, r] numbers as a column of lists."""
    n, r = values_NR.shape
    return pa.ListArray.from_arrays(np.arange(n + 1, dtype=np.int32) * r, pa.array(values_NR.reshape(-1)))


def _matrix(column: pa.ChunkedArray) -> np.ndarray:
    """A column of lists of one length as [n, r]."""
    flat = column.combine_chunks().flatten().to_numpy()
    return np.asarray(flat.reshape(len(column), -1))


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


def leaf_counts(leaf_N: Ints, leaves: int) -> list[int]:
    """Documents of each leaf."""
    counts: list[int] = np.bincount(leaf_N, minlength=leaves).tolist()
    return counts


def read_part(corpus: Location, vectors: Location) -> tuple[pa.Table, pa.Table]:
    """A part's documents, with all they carry, and base vectors."""
    return files.read_table(corpus), columns.read([vectors], ["doc_id", "vector"])
