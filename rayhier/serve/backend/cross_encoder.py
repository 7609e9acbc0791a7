"""The cross-encoder of a server, in a replica or in this process, and the limits for requests that use it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from rayhier.arrays import Floats
from rayhier.extras import needs
from rayhier.scores.call_budget import ScorerError, checked
from rayhier.search.rerank import KINDS, Reranker, open_reranker
from rayhier.search.retrieve import RERANKER, Reply, Score, Work
from rayhier.serve.backend.queues import Admission, Batches
from rayhier.serve.backend.version import Version
from rayhier.serve.errors import LostError
from rayhier.serve.threads import run_in
from rayhier.spec import InputError
from rayhier.storage import current
from rayhier.storage.paths import locate
from rayhier.threads import set_threads

WAITING = 0.5
"""Share of a request's time limit that the request may wait for other requests' calls. Longer waits are refused."""
PING_SECONDS = 5.0
"""Seconds that the cross-encoder has to finish the pairs that it is reading, before `answers` returns False."""
PAIRS = 128
"""Largest number of pairs, of one or several requests, that are scored together."""
HUNG_SECONDS = 120.0
"""Seconds of work on one batch of pairs after which Ray Serve replaces the replica."""
log = logging.getLogger("ray.serve")


class PairScores(Protocol):
    """Interface of a cross-encoder in this process or in a deployment."""

    async def score(self, queries: Sequence[str], items: Sequence[str], seconds: float) -> Floats:
        """Score n queries with n documents in pairs: scores [n]. LostError if no answer comes within `seconds`."""

    async def answers(self) -> bool: ...


class Reranking:
    """Scores pairs of a query and a document for requests, in a limited time for each request."""

    def __init__(self, scores: PairScores, seconds: float = 60.0) -> None:
        """Limit the time of a request's calls, in all rounds together, to `seconds`."""
        self._scores, self._seconds = scores, seconds
        self.admission = Admission(WAITING * seconds)
        """Counts the calls that wait, and raises ApiError 503 if further calls would wait too long."""

    async def answers(self) -> bool:
        return await self._scores.answers()

    @contextmanager
    def calls(self, count: int) -> Iterator[Callable[[Work], Awaitable[Reply]]]:
        """Count `count` calls until the block ends. Yields a function that scores pairs. ApiError 503 if too many wait.

        The function's reply is empty if the cross-encoder fails or the request's time is over.
        """
        loop, is_lost = asyncio.get_running_loop(), False
        until = loop.time() + self._seconds
        with self.admission.counting(count) as answered:

            async def score(work: Work) -> Reply:
                nonlocal is_lost
                if not isinstance(work, Score):
                    raise TypeError(f"score: got {type(work).__name__}; allowed: pairs")
                try:
                    score_N = await self._scores.score(work.queries, work.documents, until - loop.time())
                    return Reply([checked(score_N, len(work.queries))])
                except (LostError, ScorerError) as error:
                    log.warning("not re-ranked: %s", error)
                    is_lost = True
                    return Reply([])

            yield score
            if not is_lost or loop.time() >= until:  # late calls count too, because they show how slow the scorer is
                answered()


def open_versions_reranker(version: Version) -> Reranker | None:
    """Open a version's re-ranker without its cross-encoder. InputError if a published file has changed."""
    workdir, now = locate(version.workdir), version.now
    published = {kind: current.artifact(workdir, now, kind) for kind in KINDS if kind in now.artifacts}
    for artifact in published.values():
        artifact.verify()
    with version.reading() as leaf_map:
        return open_reranker(now.spec, published, leaf_map, reads=False)


class CrossEncoderReplica:
    """A replica that scores pairs by a cross-encoder. Pairs of several requests are scored together."""

    def __init__(self, version: Version, threads: int) -> None:
        """Open a version's cross-encoder. InputError if the version has none, or a published file has changed."""
        spec = version.now.spec
        if spec.cross_encoder is None:
            raise InputError("cross_encoder: got none; allowed: an index whose spec has one")
        published = current.artifact(locate(version.workdir), version.now, "cross_encoder")
        published.verify()
        needs("search.rerank: re-ranking", "torch", "transformers")
        from rayhier.scores.scorer import open_scorer

        set_threads(threads)
        self._scorer = open_scorer(published, spec.cross_encoder)
        # One thread is enough, because torch uses threads itself. The event loop stays free for health checks.
        self._thread = ThreadPoolExecutor(1, "score")
        self._batches: Batches[tuple[Sequence[str], Sequence[str]], Floats] = Batches(self._scored, PAIRS)
        self._at_work, self._since, self._pings = False, 0.0, 0
        self._read = asyncio.Condition()

    async def score(self, queries: Sequence[str], items: Sequence[str]) -> Floats:
        parts = [slice(start, start + PAIRS) for start in range(0, len(queries), PAIRS)]
        calls = [
            asyncio.ensure_future(self._batches((queries[part], items[part]), len(queries[part]))) for part in parts
        ]
        try:
            scored = await asyncio.gather(*calls)
        finally:
            for call in calls:  # if one call fails, nobody waits for the others
                call.cancel()
        return np.concatenate([np.zeros(0, np.float32), *(score_N for score_N, _ in scored)])

    async def ping(self) -> None:
        """Show that the replica works: wait until the current batch, or a probe pair, has been scored."""
        if self._at_work or self._batches.waiting:
            async with self._read:
                await self._read.wait()
            return
        self._pings += 1
        await self.score([f"ready {self._pings}"], ["ready"])

    async def alive(self) -> None:
        """Answer a health check at once, even while pairs are scored. The answer shows that the process lives."""

    async def check_health(self) -> None:
        """Raise RuntimeError if a batch hangs. Ray Serve calls this every ten seconds, and replaces a hung replica."""
        if self._at_work and time.monotonic() - self._since > HUNG_SECONDS:
            raise RuntimeError(f"at most {PAIRS} pairs were not scored within {HUNG_SECONDS:g} s")

    async def _scored(self, calls: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[Floats]:
        queries, items = ([text for call in calls for text in call[side]] for side in (0, 1))
        self._at_work, self._since = True, time.monotonic()
        try:
            score_N = await run_in(self._thread, self._scorer, queries, items)
        finally:
            self._at_work = False
            async with self._read:
                self._read.notify_all()
        return np.split(score_N, np.cumsum([len(call[0]) for call in calls])[:-1])


class LocalScorer:
    def __init__(self, version: Version, threads: int) -> None:
        self._replica = CrossEncoderReplica(version, threads)

    async def score(self, queries: Sequence[str], items: Sequence[str], seconds: float) -> Floats:
        try:
            async with asyncio.timeout(seconds):
                return await self._replica.score(queries, items)
        except Exception as error:
            log.warning("%s gave no answer: %s", RERANKER, type(error).__name__)
            raise LostError(RERANKER) from error

    async def answers(self) -> bool:
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self._replica.ping()
        except Exception:  # noqa: BLE001  any failure means no scores
            return False
        return True
