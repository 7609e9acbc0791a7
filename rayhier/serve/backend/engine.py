"""Answers requests over shard groups in this process or in deployments.

`search.retrieve` decides which work is done. The engine encodes and routes queries of several requests together, and
sends work to the groups that hold the leaves to visit. A group also scans for several requests together.
Shapes: Q queries, B leaves visited.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, Protocol, Self

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.dataset.ranking import ID, Ranking, split
from rayhier.search.request.hits import Answer, answers
from rayhier.search.request.request import NO_CROSS_ENCODER, Queries, Request, Rules, SearchLimits, rules_of
from rayhier.search.rerank import Reranker
from rayhier.search.retrieve import (
    RERANKER,
    Exact,
    Flat,
    Found,
    Reading,
    Reply,
    Retrieval,
    Retriever,
    Scan,
    Score,
    Words,
    Work,
)
from rayhier.search.routing.routes import Model, Routes, find_routes
from rayhier.search.segment.stored import Listing, Lookup, Stored, documents
from rayhier.search.snapshot import Seen
from rayhier.serve.backend.cross_encoder import Reranking, open_versions_reranker
from rayhier.serve.backend.queues import Admission, Batches
from rayhier.serve.backend.version import ShardRange, Version
from rayhier.serve.errors import ApiError, LostError, unanswered
from rayhier.serve.metrics import Metrics
from rayhier.serve.threads import MANY, SMALL, run_in, run_in_thread
from rayhier.storage.leaf_map import LeafMap

TOGETHER = 64
"""Largest number of queries, of several requests, that are encoded and routed together by default."""
QUERY = 256
"""Characters that count as one query. A longer text counts as several queries, because it takes longer to encode."""
PART = 64
"""Largest number of queries, of `QUERY` characters each, that a request encodes before other requests get their
turn."""
AT_ONCE = 2
"""Largest number of scans that a group makes at a time, unless every request is scanned alone."""


class Shards(Protocol):
    """Interface of a group's shards, in this process or in deployments. LostError if no answer comes in time."""

    async def read(self, work: Reading, seen: Seen) -> Any: ...

    async def open(self, number: int) -> None:
        """Open version `number`, in all replicas of the group. Other versions stay open."""

    async def answers(self) -> bool: ...


class Group:
    """A range of leaves and their shards. Scans of several requests are gathered into batches."""

    def __init__(
        self,
        part: ShardRange,
        shards: Shards,
        together: int = 64,
        at_once: int = AT_ONCE,
        metrics: Metrics | None = None,
    ) -> None:
        """Set limits: `together` queries in one scan, and `at_once` scans at a time."""
        self.name, self.leaves, self._shards = part.name, part.leaves, shards
        self._batches: Batches[tuple[Scan, Seen], Ranking] = Batches(self._scanned, together, "scan", metrics, at_once)

    async def read(self, work: Reading, seen: Seen) -> Any:
        """Do a piece of a search's work in the group's leaves. LostError if no answer comes.

        Scans that arrive during other scans are done together, if they have the same `k`, beam and state of the index.
        """
        if not isinstance(work, Scan):
            return await self._shards.read(work, seen)
        # A scan with a filter is done alone, because two scans with equal filters seldom arrive together.
        key = work.k, work.leaves_QB.shape[1], work.needs, seen, None if work.where is None else object()
        ranking, _ = await self._batches((work, seen), len(work.query_QM), key)
        return ranking

    async def answers(self) -> bool:
        return await self._shards.answers()

    async def _scanned(self, pieces: Sequence[tuple[Scan, Seen]]) -> list[Ranking]:
        scans, seen = [scan for scan, _ in pieces], pieces[0][1]
        query_QM, leaves_QB = (
            np.concatenate([getattr(scan, name) for scan in scans]) for name in ("query_QM", "leaves_QB")
        )
        ranking: Ranking = await self._shards.read(replace(scans[0], query_QM=query_QM, leaves_QB=leaves_QB), seen)
        return split(ranking, [len(scan.query_QM) for scan in scans])


@dataclass(frozen=True)
class Answers:
    """Answers of a request, one per query, with missing parts and milliseconds by step.

    `lost` lists per query the shard groups that did not answer, and `reranker` if the cross-encoder did not.
    """

    answers: list[Answer]
    lost: list[list[str]]
    ms: dict[str, float]
    routes: Routes
    """Leaves that the router chose for the queries. A query with a filter or few results may visit further leaves."""
    rows: Sequence[int]
    """Number of rows in the leaves that each query visited, including rows that the filter excludes."""
    seen: Seen
    """Version and change of the log that the answers are from."""


@dataclass(frozen=True)
class View:
    """The state of an index that requests see: a model, a version with its rules, and the log up to a change.

    A request takes one view when it begins and reads nothing else, so no answer mixes two states.
    """

    model: Model
    groups: Sequence[Group]
    rules: Rules
    documents: int
    count_L: Ints
    """Number of rows of each leaf in the leaf files, without the tail."""
    seen: Seen
    version: Version
    leaf_map: LeafMap
    reranker: Reranker | None = None
    reranking: Reranking | None = None
    """The cross-encoder. None if the spec has none."""

    @classmethod
    def of(
        cls,
        version: Version,
        leaf_map: LeafMap,
        model: Model,
        groups: Sequence[Group],
        limits: SearchLimits,
        reranking: Reranking | None,
    ) -> Self:
        """Open the parts of a version that an ingress needs. InputError if a published file has changed."""
        manifest = leaf_map.manifest
        rules = rules_of(version.now.spec, manifest, model.calibration)
        return cls(
            model,
            groups,
            replace(rules, groups=len(groups), limits=limits),
            manifest.documents,
            np.array(manifest.counts, dtype=np.int64),
            Seen(manifest.model, manifest.version, manifest.log),
            version,
            leaf_map,
            None if reranking is None else open_versions_reranker(version),
            reranking,
        )

    async def present(self, ids: Sequence[str], seen: Seen) -> Counter[str]:
        """Count the documents, or passages, with the given ids. LostError if a group does not answer."""
        work = Lookup(tuple(ids), needs="ids")
        tables = await asyncio.gather(*(group.read(work, seen) for group in self.groups))
        return Counter(name for table in tables for name in table[ID].to_pylist())

    @property
    def has_tail(self) -> bool:
        """True if the log has changes that the version's files do not hold."""
        return self.seen.log > self.leaf_map.manifest.log


class Engine:
    """Answers requests with a model in this process and shard groups that scan."""

    def __init__(
        self,
        view: View,
        metrics: Metrics | None = None,
        queue_seconds: float = float("inf"),
        together: int = TOGETHER,
    ) -> None:
        """Set limits: `together` queries in one encoding, and `queue_seconds` of waiting in a long queue."""
        self._changed = asyncio.Event()
        self.view = view
        self._batches: Batches[tuple[Model, Queries, int], Routes] = Batches(self._routed, together, "encode", metrics)
        self._encodes: Batches[tuple[Model, Sequence[str]], tuple[Floats, int]] = Batches(
            self._encoded, together, "encode", metrics
        )
        self.admission = Admission(queue_seconds)
        self.answered: Callable[[Request, Routes, Found, View], None] | None = None
        """Callback for each answered search. The callback must return at once."""
        # torch runs off the event loop, one call at a time, so that its threads do not compete.
        self._thread = ThreadPoolExecutor(1, "encode")

    @property
    def view(self) -> View:
        """The state of the index that new requests see. A change of the index replaces the view as a whole."""
        return self._view

    @view.setter
    def view(self, view: View) -> None:
        self._view = view
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self) -> None:
        await self._changed.wait()

    async def search(self, request: Request) -> Answers:
        """Answer each query. ApiError 503 if too many queries wait, InputError if the request is not allowed."""
        began = perf_counter()
        calls = len(request.queries) * request.budget
        view = self.view
        reranking = view.reranking
        if reranking is not None and calls:
            reranking.admission.check()
        with self.admission(_size(request.queries)):
            routes = await self._routes(request, view.model)
            routed = perf_counter()
            rows = int(view.count_L.sum())
            held_Q = _held(view, routes.leaves_QB) if routes.flat is None else np.full(len(routes.encoded), rows)
            retrieval = Retriever(view.rules, view.model.route, view.reranker)(request, routes, held_Q)
            step: list[Work] | Found = next(retrieval)
            while not isinstance(step, Found) and not isinstance(step[0], Score):
                replies = await asyncio.gather(*(self._read(work, len(routes.encoded), view) for work in step))
                weight = MANY if _may_widen(request, step, replies) else sum(reply.size for reply in replies)
                step = await run_in_thread(weight, _next, retrieval, replies)
        scanned = perf_counter()
        ms = {"queue": routes.queue_ms, "encode": routes.encode_ms, "route": routes.route_ms}
        ms["scan"] = 1e3 * (scanned - routed)
        if reranking is not None and not isinstance(step, Found):
            with reranking.calls(calls) as score:
                while not isinstance(step, Found):
                    step = await asyncio.to_thread(_next, retrieval, [await score(step[0])])
            ms["rerank"] = 1e3 * (perf_counter() - scanned)
        if not isinstance(step, Found):
            raise TypeError("search: got pairs to score, but no cross-encoder")
        results = await run_in_thread(
            step.ranking.row_QK.size, answers, step.ranking, step.leaves_QB, view.documents, request.k
        )
        ms["total"] = 1e3 * (perf_counter() - began)
        times, rows_Q = {name: round(value, 3) for name, value in ms.items()}, _held(view, step.leaves_QB).tolist()
        if self.answered is not None:
            self.answered(request, routes, step, view)
        return Answers(results, step.lost, times, routes, rows_Q, view.seen)

    async def route(self, request: Request) -> Routes:
        """Route each query to at most `beam` leaves. InputError if the router reads tokens but got vectors."""
        with self.admission(_size(request.queries)):
            return await self._routes(request, self.view.model)

    async def weigh(self, routes: Routes) -> None:
        """Compute the log-probabilities of routes, which only explanations need, in the encoder's thread."""
        await run_in(self._thread, lambda: (routes.log_probs, routes.log_densities))

    async def encode(self, texts: Sequence[str]) -> tuple[Floats, int]:
        """Encode n texts. Returns vectors [n, m] and the number of tokens. ApiError 503 if too many queries wait."""
        model, encoded = self.view.model, list[tuple[Floats, int]]()
        with self.admission(_size(texts)):
            each = max(1, PART // max(_size([text]) for text in texts))
            for begin in range(0, len(texts), each):  # if the request ends early, its other parts are not encoded
                part = texts[begin : begin + each]
                encoded.append((await self._encodes((model, part), _size(part), model))[0])
        return np.concatenate([vector_NM for vector_NM, _ in encoded]), sum(tokens for _, tokens in encoded)

    async def score(self, query: str, texts: Sequence[str]) -> Floats:
        """Score n texts for a query: [n]. ApiError 404 without a cross-encoder, 503 if it does not answer in time."""
        reranking = self.view.reranking
        if reranking is None:
            raise ApiError(404, "model_not_found", f"rerank: got no cross-encoder; allowed: {NO_CROSS_ENCODER}")
        reranking.admission.check()
        with reranking.calls(len(texts)) as score:
            reply = await score(Score([query] * len(texts), texts))
        if not reply.parts:
            raise unanswered(f"{RERANKER} did not answer. Retry later")
        score_N: Floats = reply.parts[0]
        return score_N

    async def documents(self, work: Lookup | Listing) -> tuple[list[Stored], list[str]]:
        """Read documents by id, and name the groups that did not answer. ApiError 503 if too many requests wait."""
        view = self.view
        with self.admission(1):
            tables = await asyncio.gather(*(_or_lost(group, work, view.seen) for group in view.groups))
        lost = [group.name for group, table in zip(view.groups, tables, strict=True) if table is None]
        there = [table for table in tables if table is not None]
        size = sum(table.num_rows for table in there)
        return await run_in_thread(size, documents, there, work), lost

    async def unavailable(self) -> list[str]:
        view = self.view
        checks = {group.name: group.answers() for group in view.groups}
        if view.reranking is not None:
            checks[RERANKER] = view.reranking.answers()
        replies = await asyncio.gather(*checks.values())
        return [name for name, answering in zip(checks, replies, strict=True) if not answering]

    async def _routes(self, request: Request, model: Model) -> Routes:
        if not request.encodes:
            return find_routes(model, request.queries, 0, encodes=False)
        key = model, isinstance(request.queries, np.ndarray), request.beam
        item = model, request.queries, request.beam
        routes, waited = await self._batches(item, len(request.queries), key)
        return replace(routes, queue_ms=1e3 * waited)

    async def _routed(self, requests: Sequence[tuple[Model, Queries, int]]) -> list[Routes]:
        """Encode and route queries of several requests with equal model and beam, all texts or all vectors."""
        parts, (model, _, beam) = [queries for _, queries, _ in requests], requests[0]
        together: Queries = parts[0]
        if len(parts) > 1:
            texts = [text for part in parts for text in part]
            together = np.concatenate(parts) if isinstance(parts[0], np.ndarray) else texts
        routing = partial(find_routes, model, together, beam)
        if isinstance(together, np.ndarray) and together.size * model.router.n_leaves <= SMALL:
            routes = routing()
        else:
            routes = await run_in(self._thread, routing)
        return [routes.part(span) for span in _spans(parts)]

    async def _encoded(self, requests: Sequence[tuple[Model, Sequence[str]]]) -> list[tuple[Floats, int]]:
        (model, _), parts = requests[0], [texts for _, texts in requests]

        def encode() -> tuple[Floats, list[int]]:
            encoder = model.text_encoder
            tokens = encoder.tokenise([text for part in parts for text in part])
            return encoder.read(tokens).numpy, [len(ids) for ids in tokens]

        vector_NM, sizes = await run_in(self._thread, encode)
        return [(vector_NM[span], sum(sizes[span])) for span in _spans(parts)]

    async def _read(self, work: Work, queries: int, view: View) -> Reply:
        """Send a piece of work to the groups that it concerns. The reply names groups that did not answer."""
        pieces: list[Reading]
        match work:
            case Scan():
                queries = len(work.query_QM)
                # Every search compares the whole tail, so every group that may hold a part of the tail gets the scan.
                every_Q = np.ones(queries, dtype=bool)
                needs = [every_Q if view.has_tail else work.visits(group.leaves) for group in view.groups]
                pieces = [work.part(need_Q) for need_Q in needs]
            case Words() | Flat():
                needs = [np.ones(queries, dtype=bool)] * len(view.groups)
                pieces = [work] * len(view.groups)
            case Score() | Exact() | Lookup() | Listing():
                raise TypeError(f"read: got {type(work).__name__}; allowed: what shard groups do for a search")
        needed = [number for number, need_Q in enumerate(needs) if need_Q.any()]
        replies = await asyncio.gather(*(_or_lost(view.groups[number], pieces[number], view.seen) for number in needed))
        parts, lost = [], [list[str]() for _ in range(queries)]
        for number, part in zip(needed, replies, strict=True):
            if part is not None:
                parts.append(part.among(needs[number]) if isinstance(work, Scan) else part)
                continue
            for row in np.flatnonzero(needs[number]).tolist():
                lost[row].append(view.groups[number].name)
        return Reply(parts, lost)


def _spans(parts: Sequence[Queries]) -> list[slice]:
    """Return the slice of each part in the concatenated queries of all parts."""
    ends = np.cumsum([len(part) for part in parts]).tolist()
    return [slice(end - len(part), end) for part, end in zip(parts, ends, strict=True)]


def _size(queries: Queries) -> int:
    return len(queries) if isinstance(queries, np.ndarray) else sum(1 + len(text) // QUERY for text in queries)


def _may_widen(request: Request, works: Sequence[Work], replies: Sequence[Reply]) -> bool:
    """Return True if a search may visit more leaves: with a filter, or if it found fewer than `k` results."""
    if request.where is not None:
        return True
    near = sum(reply.size for work, reply in zip(works, replies, strict=True) if isinstance(work, Scan))
    scans = any(isinstance(work, Scan) for work in works)
    return request.fills and scans and near < request.k * len(request.queries)


def _next(retrieval: Retrieval, replies: list[Reply]) -> list[Work] | Found:
    try:
        return retrieval.send(replies)
    except StopIteration as end:  # a future cannot carry StopIteration
        outcome: Found = end.value
        return outcome


def _held(view: View, leaves_QB: Ints) -> Ints:
    """Count the rows [q] in the leaves [q, b] of each query, without the tail."""
    return np.asarray(np.where(leaves_QB >= 0, view.count_L[leaves_QB], 0).sum(axis=1))


async def _or_lost(group: Group, work: Reading, seen: Seen) -> Any:
    try:
        return await group.read(work, seen)
    except LostError:
        return None
