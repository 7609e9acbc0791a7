"""Chooses the pairs that a cross-encoder scores ahead of searches.

These are each query's best documents, or each document's best queries. The corpus is read file by file, so that memory
holds the vectors of one file and of all queries.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats, Ints, Values
from rayhier.dataset.documents import document_texts
from rayhier.dataset.holdout import hash_ids, held_queries
from rayhier.dataset.queries import load_queries
from rayhier.dataset.ranking import take
from rayhier.spec import InputError
from rayhier.spec.cross_encoder import ScoresSpec
from rayhier.storage import columns
from rayhier.storage.artifact import Artifact

QUERIES = pa.schema([("query_id", pa.string()), ("kind", pa.string()), ("text", pa.string())])
"""Columns of the chosen queries; `kind` is judged, title or span."""
SPAN_WORDS = 64
"""Number of words of a span that serves as a query."""
FEW = (
    "scores.{}: got {}, but the corpus has only {} {}; allowed: at most as many, or fewer judged queries and more "
    "titles or spans"
)


@dataclass(frozen=True)
class Chosen:
    """Chosen pairs with documents of the corpus's file `name`: positions of queries [p], and rows of the file [p]."""

    name: str
    query_P: Ints
    row_P: Ints


def choose_queries(spec: ScoresSpec, corpus: Artifact, vectors: Artifact) -> pa.Table:
    """Choose as many judged queries, titles and spans as the spec says; InputError where the corpus has fewer.

    Returns a table with columns query_id, kind and text.
    """
    parts = [_judged(spec, corpus, vectors)]
    for kind, count, text_of in (("title", spec.titles, _title), ("span", spec.spans, _span)):
        if count:
            parts.append(_drawn(kind, count, text_of, corpus))
    return pa.concat_tables(parts)


def _judged(spec: ScoresSpec, corpus: Artifact, vectors: Artifact) -> pa.Table:
    queries = load_queries(corpus, vectors, "train")
    if len(queries) < spec.judged:
        raise InputError(FEW.format("judged", spec.judged, len(queries), "judged train queries"))
    kept_ids = set(held_queries(queries.ids, spec.judged))
    rows = [(name, "judged", text) for name, text in zip(queries.ids, queries.texts, strict=True) if name in kept_ids]
    return _table(rows)


def _drawn(kind: str, count: int, text_of: Callable[[str, str], str], corpus: Artifact) -> pa.Table:
    """Make queries of the first documents, by a hash of kind and id, whose title or span is not empty."""
    drawn: list[tuple[int, str, str]] = []
    for name in corpus.names("documents/"):
        table = columns.read([corpus.path(name)], ["doc_id", "title", "text"])
        rows = zip(*(table[column].to_pylist() for column in table.column_names), strict=True)
        texts = [(name, text_of(title, text)) for name, title, text in rows]
        named = [(name, text) for name, text in texts if text]
        hashes = hash_ids([f"{kind}\0{name}" for name, _ in named]).tolist()
        drawn += [(number, name, text) for number, (name, text) in zip(hashes, named, strict=True)]
        drawn = sorted(drawn)[:count]
    if len(drawn) < count:
        raise InputError(FEW.format(f"{kind}s", count, len(drawn), f"documents with a {kind}"))
    return _table([(f"{kind}:{name}", kind, text) for _, name, text in drawn])


def _title(title: str, text: str) -> str:
    return title.strip() if text.strip() else ""


def _span(_: str, text: str) -> str:
    """Return words from the middle of a text, or "" where the text has no more words than a span."""
    words = text.split()
    begin = (len(words) - SPAN_WORDS) // 2
    return " ".join(words[begin : begin + SPAN_WORDS]) if len(words) > SPAN_WORDS else ""


def _table(rows: Sequence[tuple[str, str, str]]) -> pa.Table:
    named = zip(*rows, strict=True) if rows else ([], [], [])
    return pa.table([pa.array(list(column), pa.string()) for column in named], schema=QUERIES)


def choose_pairs(spec: ScoresSpec, query_QM: Floats, vectors: Artifact) -> Iterator[Chosen]:
    """Yield the (query, document) pairs to score, each once, file by file of the corpus.

    `query_QM` are the queries' base vectors [q, m].
    """
    files = vectors.names("documents/")
    if spec.count == "all":
        yield from (_every(name, len(query_QM), vectors) for name in files)
    elif spec.per == "item":
        yield from (_of_items(name, spec.count, query_QM, vectors) for name in files)
    else:
        yield from _of_queries(files, spec.count, query_QM, vectors)


def _every(name: str, queries: int, vectors: Artifact) -> Chosen:
    rows = columns.read([vectors.path(name)], ["doc_id"]).num_rows
    return Chosen(name, np.repeat(np.arange(queries), rows), np.tile(np.arange(rows), queries))


def _keys(name: str, query_QM: Floats, vectors: Artifact) -> Values:
    """Compute base scores [q, n] of queries and a file's documents, which order the pairs."""
    table = columns.read([vectors.path(name)], ["vector"])
    return np.asarray(query_QM @ columns.matrix(table["vector"]).T, dtype=np.float64)


def _of_items(name: str, count: int, query_QM: Floats, vectors: Artifact) -> Chosen:
    key_QN = _keys(name, query_QM, vectors)
    best_CN = np.argsort(-key_QN, axis=0, kind="stable")[:count]
    row_CN = np.broadcast_to(np.arange(key_QN.shape[1]), best_CN.shape)
    order = np.lexsort((row_CN.reshape(-1), best_CN.reshape(-1)))
    return Chosen(name, best_CN.reshape(-1)[order], row_CN.reshape(-1)[order])


def _of_queries(files: Sequence[str], count: int, query_QM: Floats, vectors: Artifact) -> Iterable[Chosen]:
    """Choose the best documents of each query over all files; yields the pairs file by file."""
    key_QK, file_QK, row_QK = np.zeros((len(query_QM), 0)), *np.zeros((2, len(query_QM), 0), np.int64)
    for number, name in enumerate(files):
        file_key_QN = _keys(name, query_QM, vectors)
        key_QK = np.concatenate([key_QK, file_key_QN], axis=1)
        file_QK = np.concatenate([file_QK, np.full(file_key_QN.shape, number)], axis=1)
        row_QK = np.concatenate([row_QK, np.broadcast_to(np.arange(file_key_QN.shape[1]), file_key_QN.shape)], axis=1)
        best_QK = np.argsort(-key_QK, axis=1, kind="stable")[:, :count]
        key_QK, file_QK, row_QK = take(key_QK, best_QK), take(file_QK, best_QK), take(row_QK, best_QK)
    for number, name in enumerate(files):
        query_P, place_P = np.nonzero(file_QK == number)
        yield Chosen(name, query_P, row_QK[query_P, place_P])


def texts_of_file(corpus: Artifact, name: str) -> tuple[list[str], list[str]]:
    """Read the ids, and the texts that a cross-encoder reads, of the documents in a file of the corpus."""
    table = columns.read([corpus.path(name)], ["doc_id", "title", "text"])
    return table["doc_id"].to_pylist(), document_texts(table)
