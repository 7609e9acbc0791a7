"""Queries, judgements and vectors as published artifacts hold them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.cluster.library import faiss
from rayhier.embed.encode import document_texts
from rayhier.evaluate.baselines import Collection
from rayhier.evaluate.held import Held, hash_ids, how_many
from rayhier.evaluate.measures import Queries
from rayhier.evaluate.part import Part, read_vectors
from rayhier.evaluate.parts import HereParts
from rayhier.search.lists import Copies, Ints
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact
from rayhier.storage.columns import Floats

NEIGHBOURS = 10
Kept = Callable[[pa.ChunkedArray], pa.Array]
"""Of the whole documents that rows belong to: which are kept."""


@dataclass(frozen=True)
class Documents:
    """Document ids [n] and base vectors [n, m], in the order of the corpus."""

    ids: list[str]
    vector_NM: Floats
    parents: list[str] | None = None
    """Where the documents are passages: the whole document of each, which is what is judged."""

    @property
    def results(self) -> list[str]:
        """What each row is a result for."""
        return self.ids if self.parents is None else self.parents

    @property
    def copies(self) -> Copies | None:
        """Which rows are of one result; None where every row is its own."""
        if self.parents is None:
            return None
        return Copies(np.unique(self.parents, return_inverse=True)[1].astype(np.int64))


def load_documents(corpus: Artifact, vectors: Artifact, kept: Kept | None = None) -> Documents:
    """Documents' ids and base vectors, and their parents where the corpus is cut into passages; those that are kept."""
    names, vector_PNM = [], []
    for name in vectors.names("documents/"):
        part = read_vectors(corpus, vectors, name)
        own = part if kept is None else part.filter(kept(part["result_id"]))
        names.append(own.select(["doc_id", "result_id"]))
        vector_PNM.append(columns.matrix(own["vector"]))
    table = pa.concat_tables(names)
    ids, results = table["doc_id"], table["result_id"]
    parents = None if results.equals(ids) else results.to_pylist()
    return Documents(ids.to_pylist(), together(vector_PNM), parents)


def together(part_PNM: list[Floats]) -> Floats:
    """Matrices below each other; each goes as its rows are copied, so that they never lie in memory twice."""
    every_NM = np.empty((sum(map(len, part_PNM)), part_PNM[0].shape[1]), np.float32)
    end = len(every_NM)
    while part_PNM:
        part_NM = part_PNM.pop()
        every_NM[end - len(part_NM) : end] = part_NM
        end -= len(part_NM)
    return every_NM


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


def load_dev(corpus: Artifact, vectors: Artifact, collection: Collection) -> Queries:
    """The dev queries; where none has an answer, held-out documents that look for their nearest neighbours."""
    queries = load_queries(corpus, vectors, "dev")
    if queries.answered:
        return queries
    held = documents_as_queries(collection)
    return replace(held, texts=texts_of(corpus, held.ids))


def in_memory(documents: Documents) -> Collection:
    """Documents in this process as a collection of one part."""
    ids, results = (pa.array(names, pa.string()) for names in (documents.ids, documents.results))
    return Collection.of(HereParts([Part(ids, results, documents.vector_NM)]))


def texts_of(corpus: Artifact, ids: Sequence[str]) -> list[str]:
    """What is encoded of these documents; one file of the corpus in memory at a time."""
    wanted = pa.array(ids, pa.string())
    found: dict[str, str] = {}
    for name in corpus.names("documents/"):
        table = columns.read([corpus.path(name)], ["doc_id", "title", "text"])
        table = table.filter(pc.is_in(table["doc_id"], wanted))
        found |= zip(table["doc_id"].to_pylist(), document_texts(table), strict=True)
    return [found[name] for name in ids]


def held_out(ids: Sequence[str]) -> Ints:
    """Rows of a tenth of the documents, at most 1,000, by hash of the id."""
    return np.argsort(hash_ids(ids), kind="stable")[: how_many(len(ids))]


def documents_as_queries(collection: Collection) -> Queries:
    """Held-out documents as queries; relevant are their ten nearest others under the base encoder."""
    most = how_many(collection.documents)
    held = Held.merge(collection.parts.call("held", most), most)
    near = collection.exact(held.vector_HM, NEIGHBOURS + 1).ranking
    grades = {}
    for name, own, rows in zip(held.ids, held.results, near.row_QK, strict=True):
        others = [other for other in near.ids[rows[rows >= 0]].tolist() if other != own]
        grades[name] = dict.fromkeys(others[:NEIGHBOURS], 1)
    return Queries(held.ids, held.vector_HM, grades)


def neighbours(vectors_NM: Floats, rows: Ints, count: int) -> Ints:
    """Rows [r, count] of the exact nearest others of some rows; -1 where there are fewer."""
    index = faiss.IndexFlatIP(vectors_NM.shape[1])
    index.add(vectors_NM)
    _, found = index.search(vectors_NM[rows], count + 1)
    own = found == rows[:, None]
    # Equal vectors can push a row out of its own list; then the last place goes instead.
    own[~own.any(axis=1), -1] = True
    return np.asarray(found[~own].reshape(len(rows), count))
