"""The tail: documents of the change log that a version's leaf files lack, in memory. Every search compares the tail.

Rows are only appended. Each row has the numbers of the changes that wrote and removed the row. So a search reads the
tail as it was after one change, while later changes are added.

Shapes: N rows, Q queries, M embedding size, K results, A rows that count, P pairs of a row and a word, T words.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.arrays import Floats, Ints
from rayhier.dataset.documents import document_texts
from rayhier.dataset.ranking import ID, Needs, Ranking, by_name, once, take
from rayhier.dataset.words import occurrences, word_hashes
from rayhier.search.segment.filter import matching
from rayhier.search.segment.scan import ListedRows, scan
from rayhier.search.segment.segment import DOC_ID, INNER, VECTOR
from rayhier.spec.corpus import Language
from rayhier.spec.filter import Filter
from rayhier.storage import columns
from rayhier.storage.change_log import Change
from rayhier.storage.leaf_map import key_of

NEVER = np.iinfo(np.int64).max
"""Number of the change that removed a row, for rows that no change removed."""
UNFILTERED = (ID, DOC_ID, "title", "text")
"""Columns of the tail's rows that are no declared fields, so that no filter names them."""
TIE = 1e-5
"""Largest rounding difference between a product of matrices and an inner product, which sum in different orders."""
SPARE = 16
"""Rows that are scored at first beyond the needed rows, since rows may tie with the last."""
CHUNKS = 64
"""Largest number of tables in the rows' columns before they are copied into one table."""


class Tail:
    """Documents of the changes after a version's last change, and the ids that these changes name."""

    def __init__(self, first: int, *, words: Language | None = "english") -> None:
        self.first, self.last, self._words = first, first, words
        self._lock = threading.Lock()
        self.rows_of = dict[str, list[int]]()
        """Id -> all rows of documents with this id, ascending."""
        self.result = Growing(np.int64)
        """Number [n] of the id of each row. Rows with one id have equal numbers."""
        self.born, self.died = Growing(np.int64), Growing(np.int64)
        """Numbers [n] of the changes that wrote each row, ascending, and that removed it (or NEVER)."""
        self.leaf = Growing(np.int64)
        """Best leaf [n] of each row."""
        self.vectors: Growing | None = None
        """Vectors [n, m], as leaf files round them. None before the first row."""
        self.table: pa.Table | None = None
        """Ids and columns that results show, row for row. None before the first row."""
        self.word_hash, self.word_row, self.word_count = Growing(np.uint64), Growing(np.int64), Growing(np.int32)
        """Hash [p] of each word of a row, the row [p], ascending, and how often it has the word [p]."""
        self.length = Growing(np.float32)
        """Number of words [n] of each row."""
        self.named = dict[str, int]()
        """Id of a document -> number of the first change that writes or deletes the document."""
        self.holds_passages = False
        self.bytes = 0
        """Approximate bytes of the rows."""

    def add(self, change: Change) -> None:
        """Add the next change. ValueError unless the change's number follows the last number."""
        with self._lock:
            if change.number != self.last + 1:
                raise ValueError(f"change: got number {change.number}; allowed: {self.last + 1}")
            for name in change.ids.to_pylist():
                self.named.setdefault(name, change.number)
                for row in self.rows_of.get(name, []):
                    if self.died.values[row] == NEVER:
                        self.died.values[row] = change.number
            if change.rows is not None:
                self._write(change.rows.filter(pc.equal(change.rows["rank"], 0)), change.number)
            self.last = change.number

    def _write(self, table: pa.Table, number: int) -> None:
        key, begin = key_of(table.column_names), len(self.born)
        self.holds_passages = key != DOC_ID
        vector_NM = columns.matrix(table[VECTOR])
        if self.vectors is None:
            self.vectors = Growing(np.float32, vector_NM.shape[1])
        self.vectors.extend(vector_NM)
        results = list[int]()
        for place, name in enumerate(table[key].to_pylist()):
            rows_of = self.rows_of.setdefault(name, [])
            rows_of.append(begin + place)
            results.append(rows_of[0])
        self.result.extend(np.array(results, np.int64))
        if self._words is not None:
            self._count_words(document_texts(table), begin, self._words)
        shown = [name for name in table.column_names if name not in INNER]
        rows = pa.table([table[key], table[DOC_ID], *(table[name] for name in shown)], [ID, DOC_ID, *shown])
        joined = rows if self.table is None else pa.concat_tables([self.table, rows])
        self.table = joined.combine_chunks() if joined[ID].num_chunks > CHUNKS else joined
        self.leaf.extend(table["leaf"].to_numpy().astype(np.int64))
        self.died.extend(np.full(len(table), NEVER))
        self.born.extend(np.full(len(table), number))  # last, as a row counts from here on
        self.bytes += table.nbytes

    def _count_words(self, texts: Sequence[str], begin: int, language: Language) -> None:
        distinct, text_T, word_T, length_N = occurrences(texts, language)
        pair_P, count_P = np.unique(text_T * max(1, len(distinct)) + word_T, return_counts=True)
        text_P, word_P = np.divmod(pair_P, max(1, len(distinct)))
        self.word_hash.extend(word_hashes(distinct)[word_P])
        self.word_row.extend(begin + text_P)
        self.word_count.extend(count_P.astype(np.int32))
        self.length.extend(length_N.astype(np.float32))

    def at(self, number: int) -> "TailView":
        """Return the tail as it was after a change. ValueError if the tail lacks the change."""
        if not self.first <= number <= self.last:
            raise ValueError(f"log: got change {number}; allowed: {self.first} to {self.last}")
        return TailView(self, number)

    def __len__(self) -> int:
        return len(self.born)


class Growing:
    """A numpy array that grows at its end. Growth copies the values, so readers keep the array that they have."""

    def __init__(self, kind: Any, width: int | None = None) -> None:
        self._shape = () if width is None else (width,)
        self._array = np.empty((1_024, *self._shape), kind)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> npt.NDArray[Any]:
        return self._array[: self._size]

    def extend(self, values: npt.NDArray[Any]) -> None:
        size = self._size + len(values)
        if size > len(self._array):
            grown = np.empty((max(size, 2 * len(self._array)), *self._shape), self._array.dtype)
            grown[: self._size] = self._array[: self._size]
            self._array = grown
        self._array[self._size : size] = values
        self._size = size


@dataclass(frozen=True)
class TailView:
    """A tail as it was after one change."""

    tail: Tail
    number: int

    @property
    def is_empty(self) -> bool:
        """True if there is no change after the version's last change."""
        return self.number == self.tail.first

    def hides(self, name: str) -> bool:
        """Return True if a change names a document, so that its rows in leaf files no longer count."""
        return self.tail.named.get(name, NEVER) <= self.number

    @property
    def hidden(self) -> list[str]:
        """Ids of the documents that changes name."""
        return [name for name, number in list(self.tail.named.items()) if number <= self.number]

    def rows(self, leaves: range | None = None) -> Ints:
        """Return the rows [a] of documents that no change removed, and whose best leaf is in `leaves` (None: any)."""
        row_A = self._rows
        if leaves is None or not len(row_A):
            return row_A
        leaf_A = self.tail.leaf.values[row_A]
        return np.asarray(row_A[(leaf_A >= leaves.start) & (leaf_A < leaves.stop)])

    @cached_property
    def _rows(self) -> Ints:
        n = int(np.searchsorted(self.tail.born.values, self.number, side="right"))
        return np.flatnonzero(self.tail.died.values[:n] > self.number)

    def chosen(self, leaves: range, where: Filter | None) -> Ints:
        row_A, table = self.rows(leaves), self.tail.table
        if where is None or not len(row_A) or table is None:
            return row_A
        declared = [name for name in table.column_names if name not in UNFILTERED]
        return row_A[matching(self._columns(row_A, declared), where)]

    def _columns(self, rows: Ints, names: Sequence[str] | None = None) -> pa.Table:
        table = self.tail.table
        if table is None:
            raise ValueError("tail: has no rows")
        return (table if names is None else table.select(names)).take(pa.array(rows))

    def shown(self, rows: Ints, *, needs: Needs = "texts") -> pa.Table:
        if needs == "ids":
            return self._columns(rows, [ID])
        table = self._columns(rows)
        if needs == "texts":
            return table.drop_columns([DOC_ID])
        doc_ids = table[DOC_ID]
        vectors = columns.vector_column(self.vectors(rows), pa.float32())
        table = table.drop_columns([DOC_ID]).append_column(DOC_ID, doc_ids)
        return table.append_column(VECTOR, pa.chunked_array([vectors]))

    def vectors(self, rows: Ints | slice) -> Floats:
        vectors = self.tail.vectors
        if vectors is None:
            raise ValueError("tail: has no rows")
        return np.asarray(vectors.values[rows])

    def scan(
        self, query_QM: Floats, leaves: range, k: int, where: Filter | None = None, *, needs: Needs = "texts"
    ) -> Ranking:
        """Rank each query's [q, m] best k documents, of all whose best leaf is in `leaves` and that meet `where`."""
        row_A = self.chosen(leaves, where)
        if not len(row_A):
            return Ranking.none(len(query_QM))
        keep_N = np.zeros(int(row_A[-1]) + 1, bool)
        keep_N[row_A] = True
        vector_NM, fewest = self.vectors(slice(len(keep_N))), k + len(row_A) - self._results(row_A)
        fetch = min(fewest + SPARE, len(row_A))
        while True:  # until all rows are there that may tie with the last
            score_QT, row_QT = scan(ListedRows.of(vector_NM), query_QM, None, fetch, keep_N).arrays
            if fetch == len(row_A) or (score_QT[:, -1] < score_QT[:, fewest - 1] - TIE).all():
                break
            fetch = min(2 * fetch, len(row_A))
        row_C = np.unique(row_QT[row_QT >= 0])
        # Pair by pair, so that a score does not depend on the other queries and documents.
        score_QC = np.full((len(query_QM), len(row_C)), -np.inf, np.float32)
        for score_C, query_M, row_T in zip(score_QC, query_QM.astype(np.float32, copy=False), row_QT, strict=True):
            row_T = row_T[row_T >= 0]
            score_C[np.searchsorted(row_C, row_T)] = np.vecdot(vector_NM[row_T], query_M)
        return self.ranked(score_QC, row_C, self.best(score_QC, row_C, k), needs, len(row_A))

    def _results(self, row_A: Ints) -> int:
        """Count the results that some rows belong to. Only passages share a result."""
        return len(np.unique(self.tail.result.values[row_A])) if self.tail.holds_passages else len(row_A)

    def frequency(self, hash_T: npt.NDArray[np.uint64]) -> Ints:
        """Count the tail's documents [t] that have each word, given by hash."""
        tail, row_A = self.tail, self.rows()
        n = int(row_A[-1]) + 1 if len(row_A) else 0
        counts_N = np.zeros(n, bool)
        counts_N[row_A] = True
        pairs = int(np.searchsorted(tail.word_row.values, n, side="left"))
        hash_P, row_P = tail.word_hash.values[:pairs], tail.word_row.values[:pairs]
        return np.array([int(counts_N[row_P[hash_P == hash_]].sum()) for hash_ in hash_T], dtype=np.int64)

    @property
    def documents(self) -> int:
        return len(self.rows())

    def best(self, score_QA: Floats, row_A: Ints, k: int) -> Ints:
        """Return the places [q, k] of the best k results of each query, ties by id. -1 means a score of -inf."""
        name_A = by_name(self._columns(row_A, [ID]))
        order_QA = np.lexsort((np.broadcast_to(name_A, score_QA.shape), -score_QA), axis=1)
        best_QA = np.where(np.isneginf(take(score_QA, order_QA)), -1, order_QA)
        return once(take(score_QA, order_QA), best_QA, self.tail.result.values[row_A], k)[1]

    def ranked(self, score_QA: Floats, row_A: Ints, best_QK: Ints, needs: Needs, compared: int) -> Ranking:
        """Make a ranking from scores [q, a] of rows [a] and places [q, k] of the best. `compared` is the cost."""
        score_QK = np.where(best_QK < 0, -np.inf, take(score_QA, best_QK)).astype(np.float32)
        used = np.unique(best_QK[best_QK >= 0])
        at_A = np.full(len(row_A) + 1, -1)
        at_A[used] = np.arange(len(used))
        counted_Q = np.full(len(score_QA), compared)
        zero_Q = np.zeros(len(score_QA), np.int64)
        return Ranking(score_QK, at_A[best_QK], self.shown(row_A[used], needs=needs), counted_Q, counted_Q, zero_Q)

    def with_ids(self, names: Sequence[str], leaves: range | None = None) -> Ints:
        """Return the rows [r] of documents with given ids whose best leaf is in a range."""
        named = [row for name in dict.fromkeys(names) for row in self.tail.rows_of.get(name, [])]
        return np.intersect1d(self.rows(leaves), np.array(named, np.int64))

    def ids_after(self, name: str, count: int, leaves: range) -> list[str]:
        row_A = self.rows(leaves)
        if not len(row_A):
            return []
        ids = set(self._columns(row_A, [ID])[ID].to_pylist())
        return sorted(id_ for id_ in ids if id_ > name)[:count]

    def stored(self, rows: Ints) -> pa.Table:
        table = self._columns(rows)
        doc_ids = table[DOC_ID]
        return table.drop_columns([DOC_ID]).append_column(DOC_ID, doc_ids)
