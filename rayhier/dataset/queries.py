"""Queries with their judgements and vectors, read from published artifacts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc

from rayhier.arrays import Bools, Floats
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact


@dataclass(frozen=True)
class Queries:
    """Queries with judgements: ids [q], vectors [q, m] by one encoder, and grades: query id -> document id -> grade."""

    ids: Sequence[str]
    vector_QM: Floats
    grades: dict[str, dict[str, int]]
    texts: Sequence[str] = ()
    """Texts [q], for BM25 and for a trained transformer. Empty if texts are not loaded."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def answered(self) -> bool:
        return any(grade > 0 for grades in self.grades.values() for grade in grades.values())

    def some(self, kept_Q: Bools) -> "Queries":
        rows = np.flatnonzero(kept_Q).tolist()
        ids = [self.ids[row] for row in rows]
        texts = [self.texts[row] for row in rows] if len(self.texts) else ()
        return Queries(ids, self.vector_QM[rows], {name: self.grades[name] for name in ids}, texts)

    def about(self, documents: Collection[str]) -> "Queries":
        """Select the queries with an answer among `documents`, and only the judgements of these documents."""
        chosen = {
            query: {name: grade for name, grade in grades.items() if name in documents}
            for query, grades in self.grades.items()
        }
        answered = np.array([bool(relevant(chosen[query])) for query in self.ids], dtype=bool)
        return replace(self, grades=chosen).some(answered)

    def with_vectors(self, vector_QM: Floats) -> "Queries":
        return replace(self, vector_QM=vector_QM)


def new_answers(queries: Queries, answers: Collection[str]) -> Bools:
    """Find the queries without an answer in `answers`, which are the answers of train queries: Booleans [q]."""
    return np.array([not any(name in answers for name in relevant(queries.grades[query])) for query in queries.ids])


def relevant(grades: Mapping[str, int]) -> list[str]:
    return [name for name, grade in grades.items() if grade > 0]


def load_answers(corpus: Artifact, split: str) -> set[str]:
    judged = columns.read([corpus.path(f"judgements/{split}.parquet")], ["doc_id", "grade"])
    answers: set[str] = set(judged.filter(pc.greater(judged["grade"], 0))["doc_id"].to_pylist())
    return answers


def load_texts(corpus: Artifact, splits: Sequence[str]) -> dict[str, str]:
    paths = [corpus.path(f"judgements/{split}.parquet") for split in splits]
    judged = columns.read(paths, ["query_id"])["query_id"]
    queries = columns.read([corpus.path("queries.parquet")], ["query_id", "text"])
    table = queries.filter(pc.is_in(queries["query_id"], judged.combine_chunks()))
    return dict(zip(table["query_id"].to_pylist(), table["text"].to_pylist(), strict=True))


def load_queries(corpus: Artifact, vectors: Artifact, split: str) -> Queries:
    """Load the judged queries of a split. For the test split, one artifact is both `corpus` and `vectors`."""
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


def load_split(split: str, corpus: Artifact, vectors: Artifact, test: Artifact | None) -> Queries:
    if split == "test" and test is not None:
        return load_queries(test, test, split)
    return load_queries(corpus, vectors, split)
