"""Training pairs and dev queries from published artifacts."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import nearest
from rayhier.dataset.documents import Choice, Documents
from rayhier.dataset.holdout import hash_ids, holdout_rows
from rayhier.dataset.queries import Queries, load_queries
from rayhier.spec.train import TrainSpec
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.train.examples import Examples

POSITIVES = 3
SIBLINGS = 16
"""Passages of a document that may lie nearer than any other document's."""


def sampled(corpus: Artifact, most: int) -> Choice | None:
    """What training keeps of a corpus of more than `most` rows: judged documents, and others by hash of the id.

    None where it keeps all.
    """
    rows = int(corpus.record.counts["rows"])
    if rows <= most:
        return None
    paths = [corpus.path(f"judgements/{split}.parquet") for split in ("train", "dev")]
    judged = columns.read(paths, ["doc_id"])["doc_id"].combine_chunks().unique()
    below = int(max(most - len(judged), 0) / rows * 2**64)

    def kept(ids: pa.ChunkedArray) -> pa.Array:
        drawn = pa.array(hash_ids(ids.to_pylist()) < below)
        return pc.or_(drawn, pc.is_in(ids.combine_chunks(), judged))

    return kept


def load_examples(spec: TrainSpec, corpus: Artifact, vectors: Artifact, documents: Documents) -> Examples:
    """Judged pairs, or every document with its nearest neighbours, as `train.objective` says.

    Only a router that learns together with the encoder learns from those neighbours; for any other the documents come
    without, as to find them costs n² comparisons.
    """
    queries = load_queries(corpus, vectors, "train")
    if spec.objective == "supervised" or (spec.objective == "auto" and queries.answered):
        return judged_pairs(queries, documents)
    if spec.routes:
        return document_pairs(documents)
    none_P2 = np.empty((0, 2), dtype=np.int64)
    return Examples(documents.vector_NM, documents.vector_NM, none_P2, same=True, copies=documents.copies)


def judged_pairs(queries: Queries, documents: Documents) -> Examples:
    """Every (query, document) judged above zero; of a document in passages, the one nearest to the query.

    Nearest under the base encoder: only a part of a long document need answer, and nobody said which. Its other
    passages are spared, as they may answer too.
    """
    relevant = [[name for name, grade in queries.grades[query].items() if grade > 0] for query in queries.ids]
    rows: dict[str, list[int]] = {name: [] for names in relevant for name in names}
    for row, name in enumerate(documents.results):
        if name in rows:
            rows[name].append(row)
    pairs, spared = [], []
    for number, names in enumerate(relevant):
        for own in (rows[name] for name in names):
            pairs.append((number, own[int((documents.vector_NM[own] @ queries.vector_QM[number]).argmax())]))
            spared += [(number, row) for row in own]
    pair_P2, spared_S2 = (np.array(found, dtype=np.int64).reshape(-1, 2) for found in (pairs, spared))
    return Examples(
        queries.vector_QM, documents.vector_NM, pair_P2, queries.texts, spared_S2=spared_S2, copies=documents.copies
    )


def document_pairs(documents: Documents) -> Examples:
    """Documents as queries for their three nearest others; nothing held out is on either side.

    A passage never asks for another of its own document, which may be half of itself. Of so few documents that fewer
    than two would be left, none is held out.
    """
    kept = np.setdiff1d(np.arange(len(documents.ids)), holdout_rows(documents.ids))
    if len(kept) < 2:
        kept = np.arange(len(documents.ids))
    near = _others(documents, kept)
    pairs = np.stack([np.repeat(kept, POSITIVES), kept[near.reshape(-1)]], axis=1)
    return Examples(
        documents.vector_NM, documents.vector_NM, pairs[near.reshape(-1) >= 0], same=True, copies=documents.copies
    )


def _others(documents: Documents, kept: Ints) -> Ints:
    """For each kept row the nearest others among them [n, 3], of other documents; -1 where there are fewer."""
    rows = np.arange(len(kept))
    if documents.copies is None:
        return neighbours(documents.vector_NM[kept], rows, POSITIVES)
    near = neighbours(documents.vector_NM[kept], rows, POSITIVES + SIBLINGS)
    result_N = documents.copies.result_N[kept]
    near[result_N[near] == result_N[:, None]] = -1
    order = np.argsort(near < 0, axis=1, kind="stable")[:, :POSITIVES]
    return np.asarray(np.take_along_axis(near, order, axis=1))


def neighbours(vectors_NM: Floats, rows: Ints, count: int) -> Ints:
    """Rows [r, count] of the exact nearest others of some rows; -1 where there are fewer."""
    near = nearest(vectors_NM[rows], vectors_NM, count + 1)[0]
    own = near == rows[:, None]
    # Equal vectors can push a row out of its own list; then the last place goes instead.
    own[~own.any(axis=1), -1] = True
    return np.asarray(near[~own].reshape(len(rows), count))
