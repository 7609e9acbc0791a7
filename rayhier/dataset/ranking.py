"""Rankings: the results of queries. A search returns rankings, workers merge and `measures.Judge` measures rankings.

Shapes: Q queries, K results, F rows fetched for a query, N rows of a part of the index.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol, Self, SupportsIndex, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Bools, Floats, Ints, Names

ID = "id"
"""Column of the ids that users know: ids of documents, also if the corpus is cut into passages."""
OWN = (ID, "leaf", "title", "text")
"""Columns that every result has. Further columns are the corpus's declared fields."""
Needs = Literal["ids", "texts", "vectors"]
"""Columns that a ranking needs: `id` alone, all that results show, or `doc_id` and `vector` in addition."""
COPIED = 1_000_000
"""Largest number of bytes of documents for which a ranking is pickled as one byte string. A larger copy would cost too
much."""
HEAD = struct.Struct("QQQQ")
"""Numbers at the start of a packed ranking: queries, results per query, arrays of costs, bytes of a score."""


Record = tuple[str, int, str, str, dict[str, Any]]
"""A document as results show it: id, leaf, title, text, and the corpus's declared fields by name."""


class Unread(Protocol):
    """Documents of a ranking that are read only when they are needed."""

    def __len__(self) -> int: ...

    def ids(self) -> list[str]:
        """Read the ids of all documents of the ranking."""

    def ranks(self) -> Ints:
        """Return the place [n] of each document's id in the sorted order of the distinct ids."""

    def read(self) -> pa.Table:
        """Read all documents of the ranking."""

    def records(self) -> list[Record]:
        """Read all documents of the ranking as results show them. For few documents, this is faster than a table."""

    def take(self, places: Ints) -> "Unread":
        """Return the documents at some places [n], in this order."""

    def joined(self, others: "Sequence[Source]") -> "Unread | None":
        """Return the ranking's documents, then those of `others`. None if the documents must be read first."""


Source: TypeAlias = pa.Table | Unread


@dataclass(frozen=True)
class Ranking:
    """The best results of each query, highest score first, each result once, and the cost of the search."""

    score_QK: Floats
    """Scores [q, k]. -inf if a query has fewer results."""
    row_QK: Ints
    """Rows [q, k] of the table `documents`. -1 if a query has fewer results."""
    source: Source
    visited_Q: Ints
    """Number [q] of distinct documents whose scores were computed."""
    scanned_Q: Ints
    """Number [q] of scores computed. A document in two visited leaves counts twice."""
    leaves_Q: Ints
    calls_Q: Ints | None = None
    """Number [q] of documents that a cross-encoder read: the first results. Scores of later results are estimates."""
    base_QK: Floats | None = None
    """Scores [q, k] of the results by their vectors, -inf for none. None if `score_QK` has these scores."""
    leaf_QKR: Ints | None = None
    """The two leaves [q, k, 2] of each result of BM25. -1 means no leaf. None: no result has a leaf."""

    @cached_property
    def documents(self) -> pa.Table:
        return _read(self.source)

    @property
    def records(self) -> list[Record]:
        return records_of(self.source) if isinstance(self.source, pa.Table) else self.source.records()

    @cached_property
    def ids(self) -> Names:
        ids = self.source[ID].to_pylist() if isinstance(self.source, pa.Table) else self.source.ids()
        return np.array(ids, dtype=object)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle a small ranking as one byte string. To pickle its arrays and columns one by one takes far longer."""
        if not isinstance(self.source, pa.Table):
            return replace(self, source=self.documents).__reduce_ex__(protocol)
        if self.documents.nbytes > COPIED or self.base_QK is not None:
            return super().__reduce_ex__(protocol)
        return unpacked, (self.packed(),)

    def packed(self) -> bytes:
        """Return the ranking as bytes: shape, rows, costs, documents as an Arrow stream, scores."""
        costs = [cost for cost in (self.visited_Q, self.scanned_Q, self.leaves_Q, self.calls_Q) if cost is not None]
        head = HEAD.pack(*self.row_QK.shape, len(costs), self.score_QK.dtype.itemsize)
        numbers = (array.astype(np.int64, copy=False).tobytes() for array in (self.row_QK, *costs))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.documents.schema) as stream:
            stream.write_table(self.documents)
        return b"".join([head, *numbers, sink.getvalue(), self.score_QK.tobytes()])

    @classmethod
    def none(cls, queries: int) -> Self:
        """Make the ranking of a number of queries without results and without cost."""
        zero_Q = np.zeros(queries, dtype=np.int64)
        nothing = np.zeros((queries, 0))
        documents = pa.table({ID: pa.array([], pa.string())})
        return cls(nothing.astype(np.float32), nothing.astype(np.int64), documents, zero_Q, zero_Q, zero_Q)

    def among(self, here_Q: Bools) -> "Ranking":
        """Extend the ranking to more queries. Queries marked True in `here_Q` keep results, and all others get none."""
        if here_Q.all():
            return self
        shape = len(here_Q), self.row_QK.shape[1]
        score_QK, row_QK = np.full(shape, -np.inf, dtype=np.float32), np.full(shape, -1)
        score_QK[here_Q], row_QK[here_Q] = self.score_QK, self.row_QK
        costs = np.zeros((3, len(here_Q)), dtype=np.int64)
        costs[:, here_Q] = self.visited_Q, self.scanned_Q, self.leaves_Q
        return Ranking(score_QK, row_QK, self.source, *costs)


def records_of(table: pa.Table) -> list[Record]:
    if not table.num_rows:
        return []
    fields = table.drop_columns(list(OWN)).to_pylist()
    return list(zip(*(table[name].to_pylist() for name in OWN), fields, strict=True))


def unpacked(content: bytes) -> Ranking:
    q, k, costs, size = HEAD.unpack_from(content)
    cost_CQ = HEAD.size + 8 * q * k
    documents, score_QK = cost_CQ + 8 * q * costs, len(content) - size * q * k
    return Ranking(
        np.frombuffer(content, f"f{size}", q * k, score_QK).reshape(q, k),
        np.frombuffer(content, np.int64, q * k, HEAD.size).reshape(q, k),
        pa.ipc.open_stream(pa.py_buffer(content)[documents:score_QK]).read_all(),
        *np.frombuffer(content, np.int64, costs * q, cost_CQ).reshape(costs, q),
    )


def whole_scan(score_QK: Floats, row_QK: Ints, ids: pa.Array, visited: Ints | int) -> Ranking:
    """Make the ranking of a system without leaves that scored `visited` documents per query. Equal scores go by id."""
    visited_Q = np.broadcast_to(np.asarray(visited, dtype=np.int64), len(row_QK))
    score_QK, row_QK, documents = compact(score_QK, row_QK, pa.table({ID: ids}))
    order = ordered(score_QK, row_QK, by_name(documents))
    score_QK, row_QK = take(score_QK, order), take(row_QK, order)
    return Ranking(score_QK, row_QK, documents, visited_Q, visited_Q, np.zeros(len(row_QK), dtype=np.int64))


def _read(source: Source) -> pa.Table:
    return source if isinstance(source, pa.Table) else source.read()


def compact(score_QK: Floats, row_QK: Ints, source: Source) -> tuple[Floats, Ints, Source]:
    """Drop the documents that are in no query's results. Returns scores, renumbered rows, and the kept documents."""
    if len(row_QK) == 1 and not isinstance(source, pa.Table) and (row_QK >= 0).all():  # distinct
        return score_QK, np.arange(row_QK.shape[1])[None], source.take(row_QK[0])
    used, place = np.unique(row_QK, return_inverse=True)
    none = int((used < 0).sum())
    taken = source.take(pa.array(used[none:]) if isinstance(source, pa.Table) else used[none:])
    return score_QK, np.reshape(place, row_QK.shape) - none, taken


def together(sources: Sequence[Source]) -> Source:
    """Join documents, one after another. The result stays unread if all can be joined unread."""
    there = [source for source in sources if len(source)] or list(sources[:1])
    first, *others = there
    whole = None if isinstance(first, pa.Table) else first.joined(others)
    return pa.concat_tables(map(_read, there), promote_options="default") if whole is None else whole


def joined(parts: Sequence[tuple[Source, Ints]]) -> tuple[Source, Ints]:
    """Join the documents of several parts. Returns all documents, and the results [q, f] as rows of all documents."""
    documents = together([source for source, _ in parts])
    begin = np.cumsum([0, *(len(source) for source, _ in parts)])
    row_QF = [np.where(row_QK >= 0, row_QK + first, -1) for (_, row_QK), first in zip(parts, begin, strict=False)]
    return documents, np.concatenate(row_QF, axis=1)


def merge(parts: Sequence[Ranking], k: int) -> Ranking:
    """Merge the rankings of the parts of an index: the best k results of each query, each once. Equal scores go by id.

    Counts of visited and scanned documents are summed over the parts. The number of leaves is the largest part's.
    """
    documents, row_QF = joined([(part.source, part.row_QK) for part in parts])
    score_QF = np.concatenate([part.score_QK for part in parts], axis=1)
    number_N = by_name(documents)
    order = ordered(score_QF, row_QF, number_N)
    score_QK, row_QK = once(take(score_QF, order), take(row_QF, order), number_N, k)
    visited_Q, scanned_Q = (
        np.sum([getattr(part, name) for part in parts], axis=0) for name in ("visited_Q", "scanned_Q")
    )
    leaves_Q = np.max([part.leaves_Q for part in parts], axis=0)
    return Ranking(score_QK, row_QK, documents, visited_Q, scanned_Q, leaves_Q)


def stacked(parts: Sequence[Ranking]) -> Ranking:
    if len(parts) == 1:
        return parts[0]
    documents = together([part.source for part in parts])
    begin = np.cumsum([0, *(len(part.source) for part in parts)])
    width = max((part.row_QK.shape[1] for part in parts), default=0)
    rows, scores = [], []
    for part, first in zip(parts, begin, strict=False):
        rows.append(padded(np.where(part.row_QK >= 0, part.row_QK + first, -1), width, -1))
        scores.append(padded(part.score_QK, width, -np.inf))
    visited_Q, scanned_Q, leaves_Q = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("visited_Q", "scanned_Q", "leaves_Q")
    )
    calls = [part.calls_Q for part in parts if part.calls_Q is not None]
    calls_Q = np.concatenate(calls) if len(calls) == len(parts) else None
    return Ranking(np.concatenate(scores), np.concatenate(rows), documents, visited_Q, scanned_Q, leaves_Q, calls_Q)


def split(ranking: Ranking, sizes: Sequence[int]) -> list[Ranking]:
    """Divide a ranking into groups of consecutive queries, of the given sizes. A group keeps only its own results."""
    if len(sizes) == 1:
        return [ranking]
    parts, end = [], 0
    for size in sizes:
        rows = slice(end, end + size)
        end += size
        documents = compact(ranking.score_QK[rows], ranking.row_QK[rows], ranking.source)
        costs = ranking.visited_Q[rows], ranking.scanned_Q[rows], ranking.leaves_Q[rows]
        parts.append(Ranking(*documents, *costs, None if ranking.calls_Q is None else ranking.calls_Q[rows]))
    return parts


def ordered(score_QF: Floats, row_QF: Ints, number_N: Ints) -> Ints:
    """Return the order [q, f] of fetched rows: best score first, equal scores by `number_N`, missing rows (-1) last."""
    # Row -1 takes the last number: the appended number, which is the largest.
    return np.asarray(np.lexsort((np.append(number_N, len(number_N))[row_QF], -score_QF), axis=1))


def by_name(source: Source) -> Ints:
    """Return the place [n] of each document's id among the sorted distinct ids. Equal ids have equal places.

    >>> by_name(pa.table({"id": ["b", "a", "b"]})).tolist()
    [1, 0, 1]
    """
    if not isinstance(source, pa.Table):
        return source.ranks()
    return np.asarray(pc.rank(source[ID], tiebreaker="dense").to_numpy().astype(np.int64) - 1)


def once(score_QF: Floats, row_QF: Ints, result_N: Ints, k: int) -> tuple[Floats, Ints]:
    """Keep the first k of fetched rows [q, f], sorted by score, and only the first row of each result.

    `result_N` [n] numbers the result of each row. Returns scores and rows [q, k], -inf and -1 for missing results.
    """
    result_QF = np.where(row_QF >= 0, result_N[row_QF], -1) if len(result_N) else row_QF
    dropped = (row_QF < 0) | repeated(result_QF)
    place_QK = np.argsort(dropped, axis=1, kind="stable")[:, :k]
    missing_QK = take(dropped, place_QK)
    rows = np.where(missing_QK, -1, take(row_QF, place_QK))
    scores = np.where(missing_QK, -np.inf, take(score_QF, place_QK))
    return scores.astype(np.float32), rows


def repeated(value_QF: Ints) -> Bools:
    """Mark each value that occurs in an earlier column of the same row: Booleans [q, f]."""
    order = np.argsort(value_QF, axis=1, kind="stable")
    ranked = take(value_QF, order)
    query, place = np.nonzero(ranked[:, 1:] == ranked[:, :-1])
    again = np.zeros(value_QF.shape, dtype=bool)
    again[query, order[query, place + 1]] = True
    return again


def take(value_QN: np.ndarray, place_QK: Ints) -> np.ndarray:
    """Take the values at places [q, k] of each row. `np.take_along_axis` does the same, slower for few queries."""
    if len(value_QN) == 1:
        return np.asarray(value_QN[0].take(place_QK, axis=0))
    return np.asarray(value_QN[np.arange(len(value_QN))[:, None], place_QK])


def padded(value_QK: np.ndarray, width: int, filling: float) -> np.ndarray:
    padded_QK = np.full((len(value_QK), max(width, value_QK.shape[1])), filling, value_QK.dtype)
    padded_QK[:, : value_QK.shape[1]] = value_QK
    return padded_QK
