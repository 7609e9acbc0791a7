"""An opened index: a model, a version's files and the change log up to one change, as one request reads them.

The command line, Python, batch jobs, evaluation, the embedded server and shard groups search through a `Snapshot`. The
tail has the documents of changes after the version. Rows of leaf files with the ids of changed documents no longer
count. Every query is compared with all of the tail's documents, as they are few. Levels of a tree cannot be searched
with a tail. Shapes: Q queries, B leaves visited, K results.
"""

import contextlib
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import pyarrow as pa

from rayhier.arrays import Bools, Ints
from rayhier.dataset.ranking import ID, Ranking, by_name, compact, joined, merge, ordered, padded, stacked, take
from rayhier.model.encoded import Encoded
from rayhier.scores.call_budget import run_sync
from rayhier.search.index import reading_leaf_map
from rayhier.search.request.hits import Answer, answers
from rayhier.search.request.request import Queries, Request, Rules, rules_of
from rayhier.search.rerank import KINDS, open_reranker
from rayhier.search.retrieve import Exact, Flat, Found, Reading, Reply, Retriever, Scan, Score, Words, Work
from rayhier.search.routing.routes import Model, find_routes
from rayhier.search.segment.flat_scan import FlatScan
from rayhier.search.segment.leaf_scan import LeafScan
from rayhier.search.segment.stored import Listing, Lookup, Stored, StoredDocuments, documents
from rayhier.search.segment.tail import Tail, TailView
from rayhier.search.words.hybrid import WordScan
from rayhier.spec import InputError, JobSpec
from rayhier.spec.filter import Filter
from rayhier.spec.search import CACHE_BYTES
from rayhier.storage import current
from rayhier.storage.artifact import Artifact
from rayhier.storage.change_log import ChangeLog
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import LeafMap, Manifest
from rayhier.storage.paths import Location, locate

AT_ONCE = 16
"""Largest number of queries that are re-ranked together, since the documents to re-rank are in memory."""
WARMED = 0.5
"""Largest share of the machine's memory for vectors that are read ahead."""
SPARE = 16
"""Largest number of further results that are read at first, to replace results that changes remove."""
PROBED = 16
"""Largest number of shards of which `probe` searches a leaf."""


@dataclass(frozen=True)
class Seen:
    """The state of an index that a request reads: a version, and the change log up to one of its changes."""

    model: str
    """Fingerprint of the model whose index is read."""
    version: int
    log: int
    """Number of the last change of the change log."""


class Snapshot:
    """A version of an index with the log up to a change. Vacuum keeps the version until the snapshot is closed.

    `follow` reads later changes into the tail. Searches see only the changes up to number `log`.
    """

    def __init__(
        self,
        spec: JobSpec,
        leaf_map: LeafMap,
        model: Model | Callable[[], Model],
        scored: Mapping[str, Artifact] | None = None,
        pins: contextlib.ExitStack | None = None,
        leaves: range | None = None,
        tail: Tail | None = None,
    ) -> None:
        """Open a leaf map, or a range of its leaves, with a model or a function that opens the model when needed.

        `scored` are the artifacts for re-ranking, by kind. `pins` keep the version from vacuum, and are closed with the
        snapshot. InputError if a file is not as published.
        """
        search, manifest = spec.search, leaf_map.manifest
        self.spec, self.leaf_map, self.manifest, self._model = spec, leaf_map, manifest, model
        count = len(manifest.counts)
        here = None if leaves is None else range(min(leaves.start, count), min(leaves.stop, count))
        listed = partial(search.shortlisted, documents=manifest.documents)
        self.leaves = LeafScan.mapped(leaf_map, here, CACHE_BYTES, listed)
        self.words = WordScan.mapped(leaf_map, self.leaves, CACHE_BYTES) if manifest.words else None
        self.levels: FlatScan | None = None
        if (similarity := self.model.flat_similarity if search.how == "level" else None) is not None:
            self.levels = FlatScan(similarity, leaf_map, self.leaves, CACHE_BYTES)
        self.reranker = open_reranker(spec, scored, leaf_map) if scored else None
        self.tail, self.log = Tail(manifest.log, words=manifest.words) if tail is None else tail, manifest.log
        # A larger router may have placed documents of the tail in leaves that the version lacks.
        self._tail_leaves = range(sys.maxsize) if leaves is None else leaves
        self.close = weakref.finalize(self, (pins or contextlib.ExitStack()).close)

    @classmethod
    def open(cls, workdir: Location | str, before: Self | None = None) -> Self:
        """Open the index that a workdir's `current.json` names, with the encoder loaded.

        `before` is a snapshot of this workdir, whose model is used again if the index still has the same model.
        InputError if there is no index, or a file is not as published.
        """
        place = locate(workdir) if isinstance(workdir, str) else workdir
        snapshot = cls.of_version(place, current.read(place), before=before)
        snapshot.model.load()
        return snapshot

    @classmethod
    def of_version(
        cls,
        workdir: Location,
        now: Current,
        version: int | None = None,
        leaves: range | None = None,
        log: int | None = None,
        before: Self | None = None,
    ) -> Self:
        """Open a version of the index that `now` names (None: the newest), and read a range of its leaves (None: all).

        Searches see the change log up to number `log`. With None, searches see all changes of the newest version, or
        no change of a named version. The encoder's transformer is loaded at the first text. The model of the snapshot
        `before` is used again if it made the version. InputError as in `open`, or if an object of the log is damaged.
        """
        with contextlib.ExitStack() as pins:
            leaf_map = pins.enter_context(reading_leaf_map(workdir, now, version))
            model = None if before is None else before.model_of(leaf_map.manifest, now.spec)
            model = model or Model.of_workdir(workdir, now, leaf_map)
            scored = {kind: current.artifact(workdir, now, kind) for kind in KINDS if kind in now.artifacts}
            if now.spec.search.reranking is not None:
                for artifact in scored.values():
                    artifact.verify()
            snapshot = cls(now.spec, leaf_map, model, scored, pins.pop_all(), leaves)
            if log is not None or version is None:
                snapshot.see(log)
            return snapshot

    def see(self, log: int | None = None) -> None:
        """Let searches see changes of the log up to a number (None: all). InputError if one is missing or damaged."""
        first, last = self.manifest.log, self.follow(log)
        if log is not None and last != log:
            end = ChangeLog(self.leaf_map.root).last(first)
            raise InputError(f"log: got {log}; allowed: {first} to {end} at this version")
        self.log = last

    def follow(self, number: int | None = None) -> int:
        """Read changes up to a number (None: all) into the tail. Returns the last. InputError if one is damaged."""
        if number is None or number > self.tail.last:
            for change in ChangeLog(self.leaf_map.root).after(self.tail.last, number):
                self.tail.add(change)
        return self.tail.last

    @cached_property
    def model(self) -> Model:
        return self._model if isinstance(self._model, Model) else self._model()

    def model_of(self, manifest: Manifest, spec: JobSpec) -> Model | None:
        """Return this snapshot's model if another version has the same model. Else None."""
        mine = self.manifest
        is_same = (mine.model, mine.revision) == (manifest.model, manifest.revision) and self.spec == spec
        return self.model if is_same else None

    @cached_property
    def rules(self) -> Rules:
        """Rules for requests to this version, without a server's limits."""
        return rules_of(self.spec, self.manifest, self.model.calibration)

    def search(
        self,
        queries: Queries,
        k: int | None = None,
        beam: int | None = None,
        budget: int | None = None,
        filter: Filter | Mapping[str, Any] | None = None,  # noqa: A002 the name in every interface
        mode: str | None = None,
    ) -> list[Answer]:
        """Search the best `k` documents for each query, a text or a trained vector, in at most `beam` leaves.

        `budget`: most calls of the cross-encoder if the spec re-ranks. With 0, results are not re-ranked. `filter`:
        condition, parsed or as JSON, that results must meet. A query then visits more leaves until enough documents
        match. `mode`: `dense` orders results by vectors, `bm25` by words over all documents, `hybrid` by both. None
        means the spec's value. InputError if the arguments do not go together (see `search.request`).
        """
        return self.answer(self.rules.request(queries, k, beam, filter, mode, budget=budget))

    def answer(self, request: Request, encoded: Encoded | None = None) -> list[Answer]:
        """Answer each query of a request. If its queries are encoded already, `encoded` has them."""
        outcome = self.retrieve(request, encoded)
        return answers(outcome.ranking, outcome.leaves_QB, len(self), request.k)

    def retrieve(self, request: Request, encoded: Encoded | None = None) -> Found:
        """Return the ranking and visited leaves of a request. `encoded` has its queries, if they are encoded."""
        queries: Queries | Encoded = request.queries if encoded is None else encoded
        routes = find_routes(self.model, queries, request.beam, encodes=request.encodes)
        retriever, parts = Retriever(self.rules, self.model.route, self.reranker), list[Found]()
        size = len(routes.encoded) if request.pool is None else AT_ONCE
        if len(routes.encoded) <= size:
            return run_sync(retriever(request, routes), lambda work: [self.reply(piece) for piece in work])
        for start in range(0, len(routes.encoded), size):
            rows = slice(start, start + size)
            retrieval = retriever(request.part(rows), routes.part(rows))
            parts.append(run_sync(retrieval, lambda work: [self.reply(piece) for piece in work]))
        widest = max(part.leaves_QB.shape[1] for part in parts)
        leaves_QB = np.concatenate([padded(part.leaves_QB, widest, -1) for part in parts])
        lost = [names for part in parts for names in part.lost]
        return Found(stacked([part.ranking for part in parts]), leaves_QB, lost)

    def reply(self, work: Work) -> Reply:
        if not isinstance(work, Score):
            return Reply([self.read(work)])
        if self.reranker is None:
            raise TypeError("search: got pairs to score, but no cross-encoder")
        return Reply([self.reranker.score(work.queries, work.documents)])

    def documents(self, work: Lookup | Listing) -> list[Stored]:
        """Read the documents of some ids that exist, in the order of these ids, or a page of all documents."""
        return documents([self.read(work)], work)

    def __len__(self) -> int:
        return self._documents

    @cached_property
    def _documents(self) -> int:
        view = self.tail.at(self.log)
        if view.is_empty:
            return self.manifest.documents
        stored = self._stored.read(Lookup(tuple(view.hidden), needs="ids"))
        return self.manifest.documents - len(stored) + view.documents

    @cached_property
    def _stored(self) -> StoredDocuments:
        return StoredDocuments(self.leaves)

    @cached_property
    def row_counts(self) -> Ints:
        """Number of rows in leaf files of each leaf that the snapshot reads, else 0. The last entry is for leaf -1."""
        rows_L = np.append(np.array(self.manifest.counts, dtype=np.int64), 0)
        rows_L[: self.leaves.leaves.start] = rows_L[self.leaves.leaves.stop :] = 0
        return rows_L

    def read(self, work: Reading, log: int | None = None) -> Any:
        """Do a piece of work as of a change of the log, by default of the last change that searches see.

        ValueError if the tail lacks the change, or the work needs words or a level that cannot be searched.
        """
        view = self.tail.at(self.log if log is None else log)
        if view.is_empty:
            return self._read(work)
        match work:
            case Scan() | Exact():
                stored = _without(lambda k: self._read(replace(work, k=k)), work.k, view)
                if isinstance(work, Exact) and work.part:
                    return stored
                tail = view.scan(work.query_QM, self._tail_leaves, work.k, work.where, needs=work.needs)
                return merge([stored, tail], work.k)
            case Words():
                return self._by_words(work, view)
            case Flat():
                raise ValueError("flat: got a query for a version with a tail, which levels do not have")
            case Lookup() | Listing():
                return stored_and_tail(self._read, work, view, self._tail_leaves)

    def _read(self, work: Reading) -> Any:
        match work:
            case Scan():
                return self.leaves.scan(work.query_QM, work.leaves_QB, work.k, work.where, needs=work.needs)
            case Words():
                return self._word_scan.scan(work.texts, work.query_QM, work.k, work.where, needs=work.needs)
            case Flat():
                if self.levels is None:
                    raise ValueError("flat: got a query for an index whose spec searches leaves")
                return self.levels.shortlist(work.query, work.results, work.where, needs=work.needs)
            case Exact():
                return self.leaves.exact(work.query_QM, work.k, work.among, work.where)
            case Lookup() | Listing():
                return self._stored.read(work)

    @property
    def _word_scan(self) -> WordScan:
        if self.words is None:
            raise ValueError("words: got a query for an index that counts no words")
        return self.words

    def _by_words(self, work: Words, view: TailView) -> Ranking:
        scan, query_QM = self._word_scan, work.query_QM

        def fetched(k: int) -> Ranking:
            return scan.scan(work.texts, query_QM, k, work.where, needs=work.needs, further=view)

        stored = _without(fetched, work.k, view)
        tail = scan.scan_tail(view, work.texts, query_QM, self._tail_leaves, work.k, work.where, needs=work.needs)
        return _joined([stored, tail], work.k)

    def open_files(self) -> None:
        """Open every file that searches read, and read vectors ahead. InputError if a file is not as published."""
        if self.levels is None:
            self.leaves.open()
            self.leaves.warm(WARMED * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        if self.words is not None:
            self.words.open()

    def intact(self) -> bool:
        """Return True if all open files are unchanged since they were opened."""
        opened = self.levels or self.leaves
        return opened.intact() and (self.words is None or self.words.intact())

    def probe(self) -> None:
        """Search one leaf of each of at most 16 shards, and a word, as a test. OSError if open files were changed."""
        if not self.intact():
            raise OSError("files in the cache of this machine were changed while they were open")
        m = self.manifest.dimension
        query_QM = np.full((1, m), m**-0.5, np.float32)
        if self.levels is not None:
            self._read(Flat(self.levels.similarity.even(query_QM), 1))
        else:
            self._read(Scan(query_QM, self._probed, 1))
        if self.words is not None:
            self._read(Words(["search"], query_QM, 1))

    @cached_property
    def _probed(self) -> Ints:
        """Leaves [1, b] that `probe` searches: of each shard, the smallest leaf with rows."""
        smallest, counts = [], self.manifest.counts
        for shard in self.manifest.shards:
            with_rows = [leaf for leaf in shard.leaves if leaf in self.leaves.leaves and counts[leaf]]
            smallest += [min(with_rows, key=lambda leaf: counts[leaf])] if with_rows else []
        return np.array([smallest[:PROBED]], dtype=np.int64).reshape(1, -1)


def stored_and_tail(
    read: Callable[[Lookup | Listing], pa.Table], work: Lookup | Listing, view: TailView, leaves: range
) -> pa.Table:
    """Read documents by ids from leaf files, with `read`, and from the tail's documents in a range of leaves."""
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
    """Read a page of documents from leaf files. Later documents replace those that changes in the tail name."""
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
    """Join tables of documents. Without a document, return a table of the column `id` alone."""
    tables = [table for table in tables if len(table)]
    return pa.concat_tables(tables, promote_options="default") if tables else pa.table({ID: pa.array([], pa.string())})


def _without(read: Callable[[int], Ranking], k: int, view: TailView) -> Ranking:
    """Read k results of each query. Further results replace documents that changes name."""
    most = len(view.hidden)
    spare = min(most, SPARE)
    while True:
        ranking = read(k + spare)
        hidden_N = np.array([view.hides(name) for name in ranking.ids.tolist()], dtype=bool)
        there_QK = ranking.row_QK >= 0
        gone_QK = there_QK & np.append(hidden_N, False)[ranking.row_QK]
        full_Q, left_Q = there_QK.sum(axis=1) >= k + spare, (there_QK & ~gone_QK).sum(axis=1)
        if spare >= most or not (full_Q & (left_Q < k)).any():
            return _dropped(ranking, gone_QK | ~there_QK, k)
        spare = min(most, 4 * spare)


def _dropped(ranking: Ranking, gone_QK: Bools, k: int) -> Ranking:
    """Drop the results that `gone_QK` [q, k] marks, and keep the best k of the remaining results."""
    order_QK = np.argsort(gone_QK, axis=1, kind="stable")[:, :k]
    missing_QK = take(gone_QK, order_QK)
    score_QK = np.where(missing_QK, -np.inf, take(ranking.score_QK, order_QK)).astype(np.float32)
    row_QK = np.where(missing_QK, -1, take(ranking.row_QK, order_QK))
    score_QK, row_QK, documents = compact(score_QK, row_QK, ranking.source)
    base_QK, leaf_QKR = ranking.base_QK, ranking.leaf_QKR
    if base_QK is not None:
        base_QK = np.where(missing_QK, -np.inf, take(base_QK, order_QK)).astype(np.float32)
    leaf_QKR = None if leaf_QKR is None else take(leaf_QKR, order_QK)
    return replace(ranking, score_QK=score_QK, row_QK=row_QK, source=documents, base_QK=base_QK, leaf_QKR=leaf_QKR)


def _joined(parts: Sequence[Ranking], k: int) -> Ranking:
    """Join the results by BM25 of two parts without a document in common: the best k, ties by id."""
    documents, row_QF = joined([(part.source, part.row_QK) for part in parts])
    score_QF = np.concatenate([part.score_QK for part in parts], axis=1)
    order_QK = ordered(score_QF, row_QF, by_name(documents))[:, :k]
    score_QK, row_QK, documents = compact(take(score_QF, order_QK), take(row_QF, order_QK), documents)
    ranking = replace(parts[0], score_QK=score_QK, row_QK=row_QK, source=documents, base_QK=None, leaf_QKR=None)
    bases = [part.base_QK for part in parts if part.base_QK is not None]
    if len(bases) < len(parts):  # no vectors were given
        return ranking
    none = (np.full((*part.row_QK.shape, 2), -1) for part in parts)
    leaves = [gap if part.leaf_QKR is None else part.leaf_QKR for part, gap in zip(parts, none, strict=True)]
    base_QK, leaf_QKR = (take(np.concatenate(arrays, axis=1), order_QK) for arrays in (bases, leaves))
    return replace(ranking, base_QK=base_QK, leaf_QKR=leaf_QKR)
