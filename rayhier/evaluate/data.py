"""Queries, judgements and vectors as published artifacts hold them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.cluster.library import faiss
from rayhier.embed.encode import document_texts
from rayhier.evaluate.measures import Queries
from rayhier.search.lists import Ints
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.storage.columns import Floats

DEV_SHARE = 0.1
DEV_MOST = 1000
NEIGHBOURS = 10


@dataclass(frozen=True)
class Documents:
    """Document ids [n] and base vectors [n, m], in the order of the corpus."""

    ids: list[str]
    vector_NM: Floats


def load_documents(vectors: Artifact) -> Documents:
    """Every document's id and base vector."""
    table = columns.read([vectors.path(name) for name in vectors.names("documents/")], ["doc_id", "vector"])
    return Documents(table["doc_id"].to_pylist(), columns.matrix(table["vector"]))


def load_queries(corpus: Artifact, vectors: Artifact, split: str) -> Queries:
    """The judged queries of a split, by id, with their base vectors; none where it has no judgements."""
    judged = columns.read([corpus.path(f"judgements/{split}.parquet")], ["query_id", "doc_id", "grade"])
    grades: dict[str, dict[str, int]] = {}
    for query, document, grade in zip(*(judged[name].to_pylist() for name in judged.column_names), strict=True):
        grades.setdefault(query, {})[document] = grade
    table = columns.read([vectors.path("queries.parquet")], ["query_id", "vector"])
    table = table.filter(pc.is_in(table["query_id"], judged["query_id"].combine_chunks()))
    ids = table["query_id"]
    texts = columns.read([corpus.path("queries.parquet")], ["query_id", "text"])
    texts = texts["text"].take(pc.index_in(ids, texts["query_id"].combine_chunks()))
    return Queries(ids.to_pylist(), columns.matrix(table["vector"]), grades, texts.to_pylist())


def load_dev(corpus: Artifact, vectors: Artifact, documents: Documents) -> Queries:
    """The dev queries; where none has an answer, held-out documents that look for their nearest neighbours."""
    queries = load_queries(corpus, vectors, "dev")
    if queries.answered:
        return queries
    held = documents_as_queries(documents, held_out(documents.ids))
    return replace(held, texts=texts_of(corpus, held.ids))


def texts_of(corpus: Artifact, ids: Sequence[str]) -> list[str]:
    """What is encoded of these documents; one file of the corpus in memory at a time."""
    wanted = pa.array(ids, pa.string())
    found: dict[str, str] = {}
    for name in corpus.names("documents/"):
        table = columns.read([corpus.path(name)], ["doc_id", "title", "text"])
        table = table.filter(pc.is_in(table["doc_id"], wanted))
        found |= zip(table["doc_id"].to_pylist(), document_texts(table), strict=True)
    return [found[name] for name in ids]


def held_out(ids: list[str]) -> Ints:
    """Rows of a tenth of the documents, at most 1,000, by hash of the id."""
    hashes = np.array([int.from_bytes(hashlib.blake2b(name.encode()).digest()[:8], "big") for name in ids], np.uint64)
    order = np.argsort(hashes, kind="stable")
    return order[: max(1, min(DEV_MOST, int(len(ids) * DEV_SHARE)))]


def documents_as_queries(documents: Documents, rows: Ints) -> Queries:
    """Documents as queries; relevant are their ten nearest others under the base encoder."""
    near = neighbours(documents.vector_NM, rows, NEIGHBOURS)
    grades = {
        documents.ids[row]: {documents.ids[other]: 1 for other in others if other >= 0}
        for row, others in zip(rows, near, strict=True)
    }
    return Queries([documents.ids[row] for row in rows], documents.vector_NM[rows], grades)


def neighbours(vectors_NM: Floats, rows: Ints, count: int) -> Ints:
    """Rows [r, count] of the exact nearest others of some rows; -1 where there are fewer."""
    index = faiss.IndexFlatIP(vectors_NM.shape[1])
    index.add(vectors_NM)
    _, found = index.search(vectors_NM[rows], count + 1)
    own = found == rows[:, None]
    # Equal vectors can push a row out of its own list; then the last place goes instead.
    own[~own.any(axis=1), -1] = True
    return np.asarray(found[~own].reshape(len(rows), count))
