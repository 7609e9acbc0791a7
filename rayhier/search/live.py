"""A version's reader and its tail together: what a search sees after a change of the log.

Documents that the tail's changes name no longer count in leaf files; those that it holds are compared one and all,
whichever leaves a query visits. Shapes: Q queries, K results.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar, cast

import numpy as np
import pyarrow as pa

from rayhier.arrays import Bools
from rayhier.dataset.ranking import ID, Ranking, by_name, compact, joined, merge, ordered, take
from rayhier.search.hybrid import Lexical
from rayhier.search.reader import Reader
from rayhier.search.retrieve import Exact, Flat, Reading, Scan, Words
from rayhier.search.stored import Listing, Lookup
from rayhier.search.tail import Tail, TailView
from rayhier.storage.change_log import ChangeLog
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.paths import Location


@dataclass(frozen=True)
class Seen:
    """The state of an index that a request reads: a version, and the change log up to one of its changes."""

    model: str
    """Fingerprint of the model."""
    version: int
    """Number of the version of the leaf map."""
    log: int
    """Number of the last change of the change log."""


SPARE = 16
"""Results that are read at first in place of those that changes take away, at most."""
P = TypeVar("P", Ranking, Lexical)


@dataclass(frozen=True)
class LiveReader:
    """A reader of a version, or of a range of its leaves, and the version's tail."""

    reader: Reader
    tail: Tail
    leaves: range = range(sys.maxsize)
    """Leaves of the documents of the tail that are read; these may lie in leaves that the version does not have, where
    a router of more leaves placed them before a rollback."""

    @classmethod
    def open(cls, reader: Reader, leaf_map: LeafMap, leaves: range | None = None) -> Self:
        """Make a reader of a version, by default of all leaves, whose tail is empty yet: `follow` reads the log."""
        tail = Tail(leaf_map.manifest.log, words=leaf_map.manifest.words)
        return cls(reader, tail) if leaves is None else cls(reader, tail, leaves)

    def follow(self, root: Location, number: int | None = None) -> int:
        """Read the log's changes up to a number (None: all) into the tail; returns the number of the last one read.

        InputError where an object of the log is damaged or missing; what came before it is in the tail.
        """
        if number is None or number > self.tail.last:
            for change in ChangeLog(root).after(self.tail.last, number):
                self.tail.add(change)
        return self.tail.last

    def read(self, work: Reading, number: int) -> Any:
        """Do a piece of work as of a change of the log; ValueError where the tail does not have that change."""
        view = self.tail.at(number)
        if view.is_empty:
            return self.reader.read(work)
        match work:
            case Scan() | Exact():
                return self._near(work, view)
            case Words():
                return self._far(work, view)
            case Flat():
                raise ValueError("flat: got a query for a version with a tail, which levels do not have")
            case Lookup() | Listing():
                return self._stored(work, view)

    def _near(self, work: Scan | Exact, view: TailView) -> Ranking:
        def fetched(k: int) -> Ranking:
            part: Any = self.reader.read(replace(work, k=k))
            return cast("Ranking", part)

        stored = _without(fetched, lambda part: part, work.k, view)
        if isinstance(work, Exact) and work.part:
            return stored
        tail = view.scan(work.query_QM, self.leaves, work.k, work.where, needs=work.needs)
        return merge([stored, tail], work.k)

    def _far(self, work: Words, view: TailView) -> Lexical:
        scan = self.reader.words
        if scan is None:
            raise ValueError("words: got a query for an index that counts no words")

        def fetched(k: int) -> Lexical:
            return scan.scan(work.texts, work.query_QM, k, work.where, needs=work.needs, further=view)

        stored = _without(fetched, lambda part: part.ranking, work.k, view)
        weighted = [scan.words.weighted(text, view) for text in work.texts]
        share, query_QM = scan.words.share, work.query_QM
        tail = view.words(weighted, share, query_QM, self.leaves, work.k, work.where, needs=work.needs)
        return _joined([stored, tail], work.k)

    def _stored(self, work: Lookup | Listing, view: TailView) -> pa.Table:
        def read(piece: Lookup | Listing) -> pa.Table:
            stored: Any = self.reader.read(piece)
            return stored

        return stored_and_tail(read, work, view, self.leaves)


def stored_and_tail(
    read: Callable[[Lookup | Listing], pa.Table], work: Lookup | Listing, view: TailView, leaves: range
) -> pa.Table:
    """Read documents by their ids from leaf files, by `read`, and from the tail's documents in a range of leaves."""
    if isinstance(work, Lookup):
        kept = tuple(name for name in work.ids if not view.hides(name))
        tables = [read(replace(work, ids=kept))] if kept else []
        rows, needs = view.with_ids(work.ids, leaves), work.needs
    else:
        tables = [_page(read, work, view)]
        rows, needs = view.with_ids(view.ids_after(work.after, work.count, leaves), leaves), "texts"
    if len(rows):
        tables.append(view.shown(rows, needs="ids") if needs == "ids" else view.stored(rows))
    return together(tables)


def _page(read: Callable[[Lookup | Listing], pa.Table], work: Listing, view: TailView) -> pa.Table:
    """Read a page of leaf files' documents that no change names: more are read where others took places."""
    most = sum(name > work.after for name in view.hidden)
    spare = min(most, SPARE)
    while True:
        stored = read(replace(work, count=work.count + spare))
        names = stored[ID].to_pylist()
        kept = stored.filter(pa.array([not view.hides(name) for name in names], pa.bool_()))
        enough, ended = len(set(kept[ID].to_pylist())) >= work.count, len(set(names)) < work.count + spare
        if enough or ended or spare >= most:
            return kept
        spare = min(most, 4 * spare)


def together(tables: Sequence[pa.Table]) -> pa.Table:
    """Join tables of documents; without a document, a table of the column `id` alone."""
    tables = [table for table in tables if len(table)]
    return pa.concat_tables(tables, promote_options="default") if tables else pa.table({ID: pa.array([], pa.string())})


def _without(read: Callable[[int], P], ranking_of: Callable[[P], Ranking], k: int, view: TailView) -> P:
    """Read k results of each query without documents that changes name: more are read where these took places."""
    most = len(view.hidden)
    spare = min(most, SPARE)
    while True:
        part = read(k + spare)
        ranking = ranking_of(part)
        hidden_N = np.array([view.hides(name) for name in ranking.ids.tolist()], dtype=bool)
        there_QK = ranking.row_QK >= 0
        gone_QK = there_QK & np.append(hidden_N, False)[ranking.row_QK]
        full_Q, left_Q = there_QK.sum(axis=1) >= k + spare, (there_QK & ~gone_QK).sum(axis=1)
        if spare >= most or not (full_Q & (left_Q < k)).any():
            kept: P = _dropped(part, gone_QK | ~there_QK, k)
            return kept
        spare = min(most, 4 * spare)


def _dropped(part: Ranking | Lexical, gone_QK: Bools, k: int) -> Any:
    """Drop results [q, k] of a part, and keep the best k of the others."""
    ranking = part.ranking if isinstance(part, Lexical) else part
    order_QK = np.argsort(gone_QK, axis=1, kind="stable")[:, :k]
    missing_QK = take(gone_QK, order_QK)
    score_QK = np.where(missing_QK, -np.inf, take(ranking.score_QK, order_QK)).astype(np.float32)
    row_QK = np.where(missing_QK, -1, take(ranking.row_QK, order_QK))
    score_QK, row_QK, documents = compact(score_QK, row_QK, ranking.documents)
    kept = replace(ranking, score_QK=score_QK, row_QK=row_QK, documents=documents)
    if not isinstance(part, Lexical):
        return kept
    base_QK = np.where(missing_QK, -np.inf, take(part.base_QK, order_QK)).astype(np.float32)
    return Lexical(kept, base_QK, None if part.leaf_QKR is None else take(part.leaf_QKR, order_QK))


def _joined(parts: list[Lexical], k: int) -> Lexical:
    """Join the results by BM25 of two parts without a document in common: the best k, ties by id."""
    documents, row_QF = joined([(part.ranking.documents, part.ranking.row_QK) for part in parts])
    score_QF = np.concatenate([part.ranking.score_QK for part in parts], axis=1)
    base_QF = np.concatenate([part.base_QK for part in parts], axis=1)
    order_QK = ordered(score_QF, row_QF, by_name(documents[ID]))[:, :k]
    score_QK, row_QK, documents = compact(take(score_QF, order_QK), take(row_QF, order_QK), documents)
    ranking = replace(parts[0].ranking, score_QK=score_QK, row_QK=row_QK, documents=documents)
    none = (np.full((*part.base_QK.shape, 2), -1) for part in parts)
    leaves = [gap if part.leaf_QKR is None else part.leaf_QKR for part, gap in zip(parts, none, strict=True)]
    return Lexical(ranking, take(base_QF, order_QK), take(np.concatenate(leaves, axis=1), order_QK))
