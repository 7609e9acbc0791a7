"""Search of a published index in this process."""

import contextlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from rayhier.arrays import Ints
from rayhier.dataset.ranking import Ranking, padded, stacked
from rayhier.model.encoded import Encoded
from rayhier.scores.call_budget import run_sync
from rayhier.search.answer import Answer, answers
from rayhier.search.index import reading_leaf_map
from rayhier.search.live import LiveReader
from rayhier.search.model import Model
from rayhier.search.reader import Reader
from rayhier.search.request import Queries, Request, rules_of
from rayhier.search.rerank import KINDS, Reranker, open_reranker
from rayhier.search.retrieve import Found, Reading, Reply, Retriever, Score, Work
from rayhier.search.routes import Routes, find_routes
from rayhier.search.stored import Listing, Lookup, Stored, documents
from rayhier.spec import InputError, JobSpec
from rayhier.spec.filter import Filter
from rayhier.storage import current
from rayhier.storage.artifact import Artifact
from rayhier.storage.change_log import ChangeLog
from rayhier.storage.current import Current
from rayhier.storage.leaf_map import LeafMap, Manifest
from rayhier.storage.paths import Location, locate

AT_ONCE = 16
"""Most queries that are re-ranked together, since the documents to re-rank are in memory."""


class Searcher:
    """An open index that answers queries; vacuum keeps its version until it is closed or garbage-collected."""

    def __init__(
        self,
        model: Model,
        reader: Reader,
        manifest: Manifest,
        pins: contextlib.ExitStack | None = None,
        reranker: Reranker | None = None,
        live: LiveReader | None = None,
    ) -> None:
        """Search with a model, the index that a reader has opened, and a re-ranker where the spec has one.

        `pins` keep the index's version from vacuum; they are closed with the searcher. `live` reads the version's tail
        too.
        """
        self.model, self.reader, self.manifest, self.reranker = model, reader, manifest, reranker
        self.rules = rules_of(model.spec, manifest, model.calibration)
        self._live = live
        self.log = manifest.log if live is None else live.tail.last
        """Number of the last change of the change log that searches see."""
        self.close = weakref.finalize(self, (pins or contextlib.ExitStack()).close)

    @classmethod
    def open(cls, workdir: Location | str, before: Self | None = None) -> Self:
        """Open the index that a workdir's `current.json` names; vacuum keeps its version until the searcher is closed.

        `before` is a searcher of this workdir, whose model is used again where that is still the index's. InputError
        where there is no index, or a file is not as published.
        """
        place = locate(workdir) if isinstance(workdir, str) else workdir
        searcher = cls.of_version(place, current.read(place), before=before)
        searcher.model.load()
        return searcher

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

        Searches see the change log up to number `log`; None: all of it where `version` is None too, else what the
        version's files hold. The encoder's transformer is loaded at the first text. The model of the searcher `before`
        is used again where that is the version's. InputError as in `open`, and where an object of the log is damaged.
        """
        with contextlib.ExitStack() as pins:
            leaf_map = pins.enter_context(reading_leaf_map(workdir, now, version))
            model = None if before is None else before.model_of(leaf_map.manifest, now.spec)
            model = model or Model.of_workdir(workdir, now, leaf_map)
            artifacts = {kind: current.artifact(workdir, now, kind) for kind in KINDS if kind in now.artifacts}
            if now.spec.search.reranking is not None:
                for artifact in artifacts.values():
                    artifact.verify()
            follows = log is not None or version is None
            return cls.over(model, leaf_map, artifacts, pins.pop_all(), leaves, follows=follows, log=log)

    def model_of(self, manifest: Manifest, spec: JobSpec) -> Model | None:
        """Return this searcher's model where it is that of another version; None: another must be opened."""
        mine = self.manifest
        is_same = (mine.model, mine.revision) == (manifest.model, manifest.revision) and self.model.spec == spec
        return self.model if is_same else None

    @classmethod
    def over(
        cls,
        model: Model,
        leaf_map: LeafMap,
        scored: Mapping[str, Artifact],
        pins: contextlib.ExitStack | None = None,
        leaves: range | None = None,
        *,
        follows: bool = False,
        log: int | None = None,
    ) -> Self:
        """Open a leaf map, or a range of its leaves, for searches with an opened model.

        `scored` are artifacts for re-ranking, by kind. Where it `follows` the change log, searches see that too, up to
        number `log`; None: all of it.
        """
        reranker = open_reranker(model.spec, scored, leaf_map)
        reader = Reader.open(model.spec, leaf_map, model.flat_similarity, leaves)
        live = LiveReader.open(reader, leaf_map, leaves)
        first = leaf_map.manifest.log
        last = live.follow(leaf_map.root, log) if follows else first
        if log is not None and last != log:
            raise InputError(
                f"log: got {log}; allowed: {first} to {ChangeLog(leaf_map.root).last(first)} at this version"
            )
        has_tail = last > first
        return cls(model, reader, leaf_map.manifest, pins, reranker, live if has_tail else None)

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

        `budget`: most calls of the cross-encoder where the spec re-ranks; 0: results are not re-ranked.
        `filter`, parsed or as JSON: results are only documents that meet it; a query then visits more leaves
        until enough documents match, or until it has visited `search.widest`.
        `mode`: `dense` orders results by vectors, `bm25` by words over all documents, `hybrid` by both.
        None stands for the spec's value. InputError where the arguments do not go together (see `search.request`).
        """
        return self.answer(self.rules.request(queries, k, beam, filter, mode, budget=budget))

    def rank(
        self,
        queries: Sequence[str],
        k: int | None = None,
        beam: int | None = None,
        budget: int | None = None,
        filter: Filter | Mapping[str, Any] | None = None,  # noqa: A002
        mode: str | None = None,
    ) -> tuple[Ranking, Ints]:
        """Search like `search`; returns the ranking of all queries, and the leaves [q, β] that each visited."""
        outcome = self.retrieve(self.rules.request(queries, k, beam, filter, mode, budget=budget))
        return outcome.ranking, outcome.leaves_QB

    def answer(self, request: Request, encoded: Encoded | None = None) -> list[Answer]:
        """Answer each query of a request; `encoded` are its queries, where they are encoded already."""
        outcome = self.retrieve(request, encoded)
        return answers(outcome.ranking, outcome.leaves_QB, len(self), request.k)

    def documents(self, work: Lookup | Listing) -> list[Stored]:
        """Read some documents by their ids: those that are there, in the order asked, or a page of all."""
        return documents([self._read(work)], work)

    def __len__(self) -> int:
        """Return the number of documents that searches see."""
        return self._documents

    @cached_property
    def _documents(self) -> int:
        if self._live is None:
            return self.manifest.documents
        view = self._live.tail.at(self.log)
        stored = self.reader.documents.read(Lookup(tuple(view.hidden), needs="ids"))
        return self.manifest.documents - len(stored) + view.documents

    def _read(self, work: Reading) -> Any:
        return self.reader.read(work) if self._live is None else self._live.read(work, self.log)

    def retrieve(self, request: Request, encoded: Encoded | None = None) -> Found:
        """Search as a request says: ranking and leaves visited. `encoded` are its queries, if encoded already."""
        queries: Queries | Encoded = request.queries if encoded is None else encoded
        routes = find_routes(self.model, queries, request.beam)
        return self.drive(request, routes, self.reply)

    def drive(self, request: Request, routes: Routes, reply: Callable[[Work], Reply]) -> Found:
        """Search for queries that were encoded and routed; `reply` does each piece of work, here or elsewhere."""
        retriever, parts = Retriever(self.rules, self.model.widen, self.reranker), list[Found]()
        size = len(routes.encoded) if request.pool is None else AT_ONCE
        if len(routes.encoded) <= size:
            return run_sync(retriever(request, routes), lambda work: [reply(piece) for piece in work])
        for start in range(0, len(routes.encoded), size):
            rows = slice(start, start + size)
            retrieval = retriever(request.part(rows), routes.part(rows))
            parts.append(run_sync(retrieval, lambda work: [reply(piece) for piece in work]))
        return _stacked(parts)

    def reply(self, work: Work) -> Reply:
        """Do a piece of a search's work in this process."""
        if not isinstance(work, Score):
            return Reply([self._read(work)])
        if self.reranker is None:
            raise TypeError("search: got pairs to score, but no cross-encoder")
        return Reply([self.reranker.score(work.queries, work.documents)])


def _stacked(parts: Sequence[Found]) -> Found:
    """Join the outcomes of several groups of queries, in their order."""
    widest = max(part.leaves_QB.shape[1] for part in parts)
    leaves_QB = np.concatenate([padded(part.leaves_QB, widest, -1) for part in parts])
    return Found(stacked([part.ranking for part in parts]), leaves_QB, [names for part in parts for names in part.lost])
