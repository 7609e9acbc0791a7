"""From questions to answers: encode -> route -> scan in the shard groups that hold the leaves -> merge.

Shapes: Q queries, M embedding size, B leaves probed (beam).
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import Ranking, merge
from rayhier.model.encoded import Encoded
from rayhier.search.answer import Answer, answers
from rayhier.search.hybrid import Lexical, fused
from rayhier.search.level_similarity import LevelQuery, LevelSimilarity
from rayhier.search.model import Model
from rayhier.search.shortlist import Shortlist
from rayhier.search.widen import Goal, Widening
from rayhier.serve.admission import Admission
from rayhier.serve.batching import Batches
from rayhier.serve.errors import LostError
from rayhier.serve.reranking import RERANKER, Reranking
from rayhier.serve.threads import SMALL, run_in_thread
from rayhier.spec.filter import Filter
from rayhier.spec.search import Mode

T = TypeVar("T")
TOGETHER = 64
"""Questions of several requests that are encoded and routed together, at most, where nothing else is said."""
Questions = Sequence[str] | Floats
"""Questions as texts, or as their vectors [q, m]."""


class Group(Protocol):
    """A shard group: a range of leaves, in this process or behind a deployment."""

    @property
    def name(self) -> str:
        """Name of the group in answers."""

    @property
    def leaves(self) -> range:
        """Leaves that the group holds."""

    async def scan(
        self, query_QM: Floats, leaves_QB: Ints, k: int, where: Filter | None = None, *, with_vectors: bool = False
    ) -> Ranking:
        """The best k results of each query in this group's leaves, of those that a filter lets through.

        With `with_vectors`, with their own `doc_id` and their `vector`. LostError where the group does not answer.
        """

    async def level(
        self, query: LevelQuery, results: int, where: Filter | None = None, *, with_vectors: bool = False
    ) -> Shortlist:
        """The group's best rows of each query by a level of the tree, which hold `results` results; LostError too."""

    async def words(
        self, texts: Sequence[str], query_QM: Floats, k: int, where: Filter | None = None, *, with_vectors: bool = False
    ) -> Lexical:
        """The best k results of each query by BM25 over this group's documents, as `WordScan.scan`; LostError too."""

    async def answers(self) -> bool:
        """Whether the group answers now."""


@dataclass(frozen=True)
class Routes:
    """Encoded questions, the leaves they visit, and the milliseconds that encoding and routing took."""

    encoded: Encoded
    leaves_QB: Ints
    log_prob_QB: Floats
    encode_ms: float
    route_ms: float
    level: LevelQuery | None = None
    """What documents are compared with in a search by a level, which visits no leaf."""
    queue_ms: float = 0.0
    """Milliseconds that the questions waited for the encoder."""
    log_density_QB: Floats | None = None
    """Log-densities of the leaves, where the router knows their sizes: it visits the densest first."""

    def of(self, rows: slice) -> "Routes":
        """Routes of some of the questions, which took as long as those of all."""
        density_QB = None if self.log_density_QB is None else self.log_density_QB[rows]
        leaves_QB, log_prob_QB = self.leaves_QB[rows], self.log_prob_QB[rows]
        return replace(
            self, encoded=self.encoded[rows], leaves_QB=leaves_QB, log_prob_QB=log_prob_QB, log_density_QB=density_QB
        )

    def nowhere(self) -> "Routes":
        """The same questions, which visit no leaf."""
        return replace(self, leaves_QB=self.leaves_QB[:, :0], log_prob_QB=self.log_prob_QB[:, :0], log_density_QB=None)


@dataclass(frozen=True)
class Answers:
    """An answer for each question, the names of the lost groups that it needed, and milliseconds by step."""

    answers: list[Answer]
    lost: list[list[str]]
    ms: dict[str, float]
    routes: Routes | None = None
    """How the questions were routed, before any of them visited more leaves."""
    rows: Sequence[int] = ()
    """Rows in the leaves that each question visited, those too that no filter lets through."""


class Engine:
    """Answers questions by a model in this process and shard groups elsewhere."""

    def __init__(
        self,
        model: Model,
        groups: Sequence[Group],
        total: int,
        counts: Sequence[int],
        reranking: Reranking | None = None,
        queue_seconds: float = math.inf,
        noted: Callable[[int], None] = lambda _: None,
        together: int = TOGETHER,
    ) -> None:
        """Take groups that hold `total` documents together, and so many rows in each leaf.

        Questions that would wait for longer than `queue_seconds`, where a line has stood for a while, are refused.
        `noted` is called with the size of each batch.
        """
        self.model, self.groups, self.total = model, groups, total
        self.counts, self.rows = np.array(counts, dtype=np.int64), sum(counts)
        self.reranking = reranking
        self.batches: Batches[tuple[Questions, int], Routes] = Batches(self._routed, together, noted=noted)
        self.admission = Admission(queue_seconds)
        # torch stays off the replica's loop; one call at a time, so that its threads do not crowd one another.
        self._thread = ThreadPoolExecutor(1, "encode")

    async def search(
        self,
        questions: Questions,
        k: int,
        beam: int,
        where: Filter | None = None,
        budget: int = 0,
        mode: Mode = "dense",
    ) -> Answers:
        """The best k documents of each question in at most `beam` leaves, or by a level where the spec says.

        By `mode`, what orders them: vectors; BM25 over all documents; or both. Vectors as questions have no words.
        With a filter, of those that it lets through; a question then visits more leaves until enough match, or until it
        has visited `search.widest`. With a budget, re-ranked by as many calls of the cross-encoder for each question;
        where that is lost, the answers are as they were, and name it. InputError where the router needs texts.
        """
        began = time.perf_counter()
        similarity = self.model.level_similarity
        if self.reranking is not None and budget and self.reranking.spec.pool == "all":
            beam = self.model.router.n_leaves
        pool = None
        if self.reranking is not None and budget:
            self.reranking.admission.check()
            pool = max(k, self.reranking.spec.pooled(self.rows))
        with self.admission(len(questions)):
            routes = await (
                self._gathered(questions, beam) if similarity is None else self._compared(questions, similarity)
            )
            if self.reranking is not None and pool is not None:
                self.reranking.check(len(questions), self._pooled(routes, k, pool, mode))
            scanning = time.perf_counter()
            if mode == "dense" or isinstance(questions, np.ndarray):
                ranking, leaves_QB, lost = await self._near(
                    routes, k, beam, where, pool or k, with_vectors=pool is not None
                )
            else:
                routes = routes.nowhere() if mode == "bm25" else routes
                ranking, leaves_QB, lost = await self._worded(questions, routes, k, beam, where, pool, mode)
        scanned = time.perf_counter()
        ms = {"queue": routes.queue_ms, "encode": routes.encode_ms, "route": routes.route_ms}
        ms["scan"] = 1e3 * (scanned - scanning)
        if self.reranking is not None and pool is not None and not isinstance(questions, np.ndarray):
            ranking, answered = await self.reranking(questions, routes.encoded.numpy, ranking, k, budget)
            lost = lost if answered else [[*names, RERANKER] for names in lost]
            ms["rerank"] = 1e3 * (time.perf_counter() - scanned)
        size = max(ranking.row_QK.size, ranking.documents.num_rows)
        each = await run_in_thread(size, answers, ranking, leaves_QB, self.total, k)
        ms["total"] = 1e3 * (time.perf_counter() - began)
        rows = self._held(leaves_QB).tolist()
        return Answers(each, lost, {name: round(value, 3) for name, value in ms.items()}, routes, rows)

    async def route(self, questions: Questions, beam: int) -> Routes:
        """The leaves of each question, at most `beam`; InputError where the router reads tokens but got vectors."""
        with self.admission(len(questions)):
            return await self._gathered(questions, beam)

    def _pooled(self, routes: Routes, k: int, pool: int, mode: Mode) -> int:
        """Documents that may be read for some questions together, at most, where one may read some of `pool`."""
        search, q = self.model.spec.search, len(routes.encoded)
        held_Q = self._held(routes.leaves_QB) if routes.level is None else np.full(q, self.rows)
        near = 0 if mode == "bm25" else int(np.minimum(pool, held_Q).sum())
        listed = {"dense": 0, "bm25": pool, "hybrid": search.fusion.listed(k) * len(self.groups)}
        return near + q * min(listed[mode], self.rows)

    def _held(self, leaves_QB: Ints) -> Ints:
        """Rows [q] in the leaves [q, β] of each question."""
        return np.asarray(np.where(leaves_QB >= 0, self.counts[leaves_QB], 0).sum(axis=1))

    async def _gathered(self, questions: Questions, beam: int) -> Routes:
        """The leaves of each question, encoded and routed with those of other requests."""
        routes, waited = await self.batches(
            (questions, beam), len(questions), key=(isinstance(questions, np.ndarray), beam)
        )
        return replace(routes, queue_ms=1e3 * waited)

    async def _routed(self, asked: Sequence[tuple[Questions, int]]) -> list[Routes]:
        """Routes of several requests' questions of one kind and beam, encoded and routed together."""
        parts, beam = [questions for questions, _ in asked], asked[0][1]
        every: Questions = parts[0]
        if len(parts) > 1:
            texts = [text for part in parts for text in part]
            every = np.concatenate(parts) if isinstance(parts[0], np.ndarray) else texts
        if isinstance(every, np.ndarray) and every.size * self.model.router.n_leaves <= SMALL:
            routes = self._route(every, beam)
        else:
            routes = await asyncio.get_running_loop().run_in_executor(self._thread, self._route, every, beam)
        ends = np.cumsum([len(part) for part in parts]).tolist()
        return [routes.of(slice(end - len(part), end)) for part, end in zip(parts, ends, strict=True)]

    async def unavailable(self) -> list[str]:
        """Names of the shard groups that do not answer now, and of the cross-encoder."""
        asked = {group.name: group.answers() for group in self.groups}
        if self.reranking is not None:
            asked[RERANKER] = self.reranking.answers()
        there = await asyncio.gather(*asked.values())
        return [name for name, answering in zip(asked, there, strict=True) if not answering]

    async def _compared(self, questions: Questions, similarity: LevelSimilarity) -> Routes:
        """No leaves, but what a search by a level compares documents with."""
        began = time.perf_counter()
        routes = await asyncio.get_running_loop().run_in_executor(self._thread, self._compare, questions, similarity)
        worked = routes.encode_ms + routes.route_ms
        return replace(routes, queue_ms=max(0.0, 1e3 * (time.perf_counter() - began) - worked))

    def _route(self, questions: Questions, beam: int) -> Routes:
        began = time.perf_counter()
        encoded = self._encode(questions)
        routing = time.perf_counter()
        leaves_QB, log_prob_QB = self.model.route(encoded, beam)
        done = time.perf_counter()
        ms = 1e3 * (routing - began), 1e3 * (done - routing)
        return Routes(encoded, leaves_QB, log_prob_QB, *ms, log_density_QB=self.model.densities(leaves_QB, log_prob_QB))

    def _compare(self, questions: Questions, similarity: LevelSimilarity) -> Routes:
        began = time.perf_counter()
        encoded = self._encode(questions)
        routing = time.perf_counter()
        level = similarity.query(self.model.tree, encoded)
        done = time.perf_counter()
        no_leaves = np.zeros((len(encoded), 0), np.int64), np.zeros((len(encoded), 0), np.float32)
        return Routes(encoded, *no_leaves, 1e3 * (routing - began), 1e3 * (done - routing), level)

    def _encode(self, questions: Questions) -> Encoded:
        return Encoded.of(questions) if isinstance(questions, np.ndarray) else self.model.encode(questions)

    async def _worded(
        self,
        texts: Sequence[str],
        routes: Routes,
        k: int,
        beam: int,
        where: Filter | None,
        pool: int | None,
        mode: Mode,
    ) -> tuple[Ranking, Ints, list[list[str]]]:
        """What BM25 finds, or both: as `_near` returns it; a question needs the words of all groups."""
        fetch, with_vectors, fusion, query_QM = (
            pool or k,
            pool is not None,
            self.model.spec.search.fusion,
            routes.encoded.numpy,
        )
        depth = fusion.listed(k) if mode == "hybrid" else fetch
        words = self._ask(
            lambda group, _: group.words(texts, query_QM, depth, where, with_vectors=with_vectors),
            [np.ones(len(texts), dtype=bool)] * len(self.groups),
        )
        if mode == "bm25":
            found, lost = await words
            parts = [part.ranking for _, part in found]
            return merge([Ranking.none(len(texts)), *parts], fetch), routes.leaves_QB, lost
        near = self._near(routes, k, beam, where, max(fetch, depth), with_vectors=with_vectors)
        (ranking, leaves_QB, gone), (found, lost) = await asyncio.gather(near, words)
        lexical = [part for _, part in found]
        rows = ranking.row_QK.size + sum(part.base_QK.size for part in lexical)
        ranking = await run_in_thread(rows, fused, ranking, lexical, fetch, fusion, depth)
        return ranking, leaves_QB, [sorted({*one, *two}) for one, two in zip(gone, lost, strict=True)]

    async def _near(
        self, routes: Routes, k: int, beam: int, where: Filter | None, fetch: int, *, with_vectors: bool
    ) -> tuple[Ranking, Ints, list[list[str]]]:
        """What vectors find for k results of each question: the best `fetch`.

        Also the leaves [q, β] that it visited, and the lost groups that hold some of them.
        """
        if routes.level is None:
            return await self._widened(routes, k, beam, where, fetch, with_vectors=with_vectors)
        ranking, lost = await self._level(routes.level, fetch, where, with_vectors=with_vectors)
        return ranking, routes.leaves_QB, lost

    async def _widened(
        self, routes: Routes, k: int, beam: int, where: Filter | None, fetch: int, *, with_vectors: bool
    ) -> tuple[Ranking, Ints, list[list[str]]]:
        """The best `fetch` of each question, the leaves [q, β] that it visited, and the lost groups that hold some.

        With a filter, questions for which too few match visit more leaves; not those that lack a group.
        """
        leaves = self.model.router.n_leaves
        most = beam if where is None else self.model.spec.search.leaves_widened(leaves)
        widening = Widening(routes.leaves_QB, Goal.of(k, beam, leaves, self.rows, most))
        lost: list[list[str]] = [[] for _ in range(len(routes.encoded))]
        while True:
            asked = routes.encoded[widening.asked_A]
            ranking, gone = await self._scan(asked.numpy, widening.leaves, fetch, where, with_vectors=with_vectors)
            for row, names in zip(widening.asked_A.tolist(), gone, strict=True):
                lost[row] = names
            widening.add_results(ranking, np.array([len(names) > 0 for names in gone], dtype=bool))
            if widening.done:
                return widening.ranking, widening.leaves_QB, lost
            further = routes.encoded[widening.asked_A], widening.wider
            loop = asyncio.get_running_loop()
            widening.visit(await loop.run_in_executor(self._thread, self.model.widen, *further))

    async def _scan(
        self, query_QM: Floats, leaves_QB: Ints, k: int, where: Filter | None, *, with_vectors: bool
    ) -> tuple[Ranking, list[list[str]]]:
        """The best k of each question over all groups, and for each question the lost groups that hold its leaves."""
        needs = [_within(leaves_QB, group.leaves) for group in self.groups]

        def scan(group: Group, need_Q: Bools) -> Awaitable[Ranking]:
            return group.scan(query_QM[need_Q], leaves_QB[need_Q], k, where, with_vectors=with_vectors)

        found, lost = await self._ask(scan, needs)
        parts = [ranking.among(need_Q) for need_Q, ranking in found]
        rows = sum(part.documents.num_rows for part in parts)
        return await run_in_thread(rows, merge, [Ranking.none(len(query_QM)), *parts], k), lost

    async def _level(
        self, query: LevelQuery, k: int, where: Filter | None, *, with_vectors: bool
    ) -> tuple[Ranking, list[list[str]]]:
        """The best k of each question by a level, over all groups, and the lost groups of each question."""
        q, listed = len(query.level_QK), self.model.spec.search.shortlisted(k)
        every_Q = np.ones(q, dtype=bool)
        found, lost = await self._ask(
            lambda group, _: group.level(query, listed, where, with_vectors=with_vectors), [every_Q] * len(self.groups)
        )
        if not found:
            return Ranking.none(q), lost
        shortlists = [shortlist for _, shortlist in found]
        scored_Q = np.sum([shortlist.scored for shortlist in shortlists], axis=0)  # each group scored its own again
        return replace(Shortlist.merge(shortlists, listed).finished(k), scanned_Q=scored_Q), lost

    async def _ask(
        self, ask: Callable[[Group, Bools], Awaitable[T]], needs: Sequence[Bools]
    ) -> tuple[list[tuple[Bools, T]], list[list[str]]]:
        """Ask each group for the questions that need it, and name, for each question, the groups that are lost.

        Returns the questions that an answer is for [q] with each answer.
        """

        async def asked(group: Group, need_Q: Bools) -> T | None:
            try:
                return await ask(group, need_Q)
            except LostError:
                return None

        needed = [(group, need_Q) for group, need_Q in zip(self.groups, needs, strict=True) if need_Q.any()]
        given = await asyncio.gather(*(asked(group, need_Q) for group, need_Q in needed))
        lost: list[list[str]] = [[] for _ in range(len(needs[0]) if needs else 0)]
        found: list[tuple[Bools, T]] = []
        for (group, need_Q), answer in zip(needed, given, strict=True):
            if answer is not None:
                found.append((need_Q, answer))
                continue
            for row in np.flatnonzero(need_Q).tolist():
                lost[row].append(group.name)
        return found, lost


def _within(leaves_QB: Ints, leaves: range) -> Bools:
    """Whether each question visits a leaf of a range."""
    return np.asarray(((leaves_QB >= leaves.start) & (leaves_QB < leaves.stop)).any(axis=1))
