"""Choose pairs to score ahead: queries, and for each its best documents, or for each document its best queries.

Works file by file of the corpus, so that memory holds the vectors of one file and of all queries.
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
"""Columns of the queries; `kind` is judged, title or span."""
SPAN_WORDS = 64
"""Words of a span that serves as a query."""
FEW = (
    "scores.{}: got {}, but the corpus has only {} {}; allowed: at most as many, or fewer judged queries and more "
    "titles or spans"
)


@dataclass(frozen=True)
class Chosen:
    """Pairs in one file of the corpus: positions of queries [p], and rows of the file [p]."""

    name: str
    query_P: Ints
    row_P: Ints


def choose_queries(spec: ScoresSpec, corpus: Artifact, vectors: Artifact) -> pa.Table:
    """Choose as many queries of each kind as the spec sets; InputError where the corpus has fewer."""
    parts = [_judged(spec, corpus, vectors)]
    for kind, count, text_of in (("title", spec.titles, _title), ("span", spec.spans, _span)):
        if count:
            parts.append(_drawn(kind, count, text_of, corpus))
    return pa.concat_tables(parts)


def _judged(spec: ScoresSpec, corpus: Artifact, vectors: Artifact) -> pa.Table:
    queries = load_queries(corpus, vectors, "train")
    if len(queries) < spec.judged:
        raise InputError(FEW.format("judged", spec.judged, len(queries), "judged train queries"))
    kept = set(held_queries(queries.ids, spec.judged))
    rows = [(name, "judged", text) for name, text in zip(queries.ids, queries.texts, strict=True) if name in kept]
    return _table(rows)


def _drawn(kind: str, count: int, text_of: Callable[[str, str], str], corpus: Artifact) -> pa.Table:
    """The first documents by hash of kind and id, whose title or span is not empty, as queries."""
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
    """Words from the middle of a text that has more than a span's."""
    words = text.split()
    begin = (len(words) - SPAN_WORDS) // 2
    return " ".join(words[begin : begin + SPAN_WORDS]) if len(words) > SPAN_WORDS else ""


def _table(rows: Sequence[tuple[str, str, str]]) -> pa.Table:
    named = zip(*rows, strict=True) if rows else ([], [], [])
    return pa.table([pa.array(list(column), pa.string()) for column in named], schema=QUERIES)


def choose_pairs(spec: ScoresSpec, query_QM: Floats, vectors: Artifact) -> Iterator[Chosen]:
    """Choose the pairs to score for queries with base vectors [q, m], file by file; every pair once."""
    files = vectors.names("documents/")
    if spec.count == "all":
        yield from (_every(name, len(query_QM), vectors) for name in files)
    elif spec.per == "item":
        yield from (_of_items(name, spec.count, spec.draw, query_QM, vectors) for name in files)
    else:
        yield from _of_queries(files, spec.count, spec.draw, query_QM, vectors)


def _every(name: str, queries: int, vectors: Artifact) -> Chosen:
    rows = columns.read([vectors.path(name)], ["doc_id"]).num_rows
    return Chosen(name, np.repeat(np.arange(queries), rows), np.tile(np.arange(rows), queries))


def _keys(name: str, draw: str, query_QM: Floats, vectors: Artifact) -> Values:
    """What orders pairs [q, n] of queries and a file's documents: the base score, or a draw by the documents' ids."""
    table = columns.read([vectors.path(name)], ["doc_id", "vector"])
    if draw == "base":
        return np.asarray(query_QM @ columns.matrix(table["vector"]).T, dtype=np.float64)
    seeds = hash_ids(table["doc_id"].to_pylist())
    drawn = [np.random.default_rng(int(seed)).random(len(query_QM)) for seed in seeds]
    return np.asarray(drawn, dtype=np.float64).reshape(-1, len(query_QM)).T


def _of_items(name: str, count: int, draw: str, query_QM: Floats, vectors: Artifact) -> Chosen:
    key_QN = _keys(name, draw, query_QM, vectors)
    best_CN = np.argsort(-key_QN, axis=0, kind="stable")[:count]
    row_CN = np.broadcast_to(np.arange(key_QN.shape[1]), best_CN.shape)
    order = np.lexsort((row_CN.reshape(-1), best_CN.reshape(-1)))
    return Chosen(name, best_CN.reshape(-1)[order], row_CN.reshape(-1)[order])


def _of_queries(files: Sequence[str], count: int, draw: str, query_QM: Floats, vectors: Artifact) -> Iterable[Chosen]:
    """The best documents of each query over all files, given back file by file."""
    key_QK, file_QK, row_QK = np.zeros((len(query_QM), 0)), *np.zeros((2, len(query_QM), 0), np.int64)
    for number, name in enumerate(files):
        own_QN = _keys(name, draw, query_QM, vectors)
        key_QK = np.concatenate([key_QK, own_QN], axis=1)
        file_QK = np.concatenate([file_QK, np.full(own_QN.shape, number)], axis=1)
        row_QK = np.concatenate([row_QK, np.broadcast_to(np.arange(own_QN.shape[1]), own_QN.shape)], axis=1)
        best_QK = np.argsort(-key_QK, axis=1, kind="stable")[:, :count]
        key_QK, file_QK, row_QK = take(key_QK, best_QK), take(file_QK, best_QK), take(row_QK, best_QK)
    for number, name in enumerate(files):
        query_P, place_P = np.nonzero(file_QK == number)
        yield Chosen(name, query_P, row_QK[query_P, place_P])


def texts_of_file(corpus: Artifact, name: str) -> tuple[list[str], list[str]]:
    """Read ids and texts of a file's documents, for the cross-encoder."""
    table = columns.read([corpus.path(name)], ["doc_id", "title", "text"])
    return table["doc_id"].to_pylist(), document_texts(table)
