"""The cross-encoder as the engine uses it: its calls are counted and limited in time, and it may be unavailable."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rayhier.arrays import Floats
from rayhier.scores.call_budget import ScorerError, checked
from rayhier.search.rerank import KINDS, Reranker, open_reranker
from rayhier.search.retrieve import Reply, Score, Work
from rayhier.serve.backend.admission import Admission
from rayhier.serve.backend.version import Version
from rayhier.serve.errors import LostError
from rayhier.storage import current
from rayhier.storage.paths import locate

WAITING = 0.5
"""Share of a request's time limit for calls that it may wait for other requests' calls; a longer wait is refused."""
log = logging.getLogger("ray.serve")


class PairScores(Protocol):
    """Interface of a cross-encoder in this process or in a deployment."""

    async def score(self, queries: Sequence[str], items: Sequence[str], seconds: float) -> Floats:
        """Score each query [n] with its item (document) [n]: [n]. LostError if no answer comes within `seconds`."""

    async def answers(self) -> bool: ...


class Reranking:
    """Scores pairs of a query and a document for requests, in a limited time for each request."""

    def __init__(self, scores: PairScores, seconds: float = 60.0) -> None:
        """Limit the calls of a request, in all its rounds together, to `seconds`."""
        self._scores, self._seconds = scores, seconds
        self.admission = Admission(WAITING * seconds)
        """Counter of the calls that wait. Raises ApiError 503 where further ones would wait too long."""

    async def answers(self) -> bool:
        return await self._scores.answers()

    @contextmanager
    def calls(self, count: int) -> Iterator[Callable[[Work], Awaitable[Reply]]]:
        """Count a request's calls while the block runs. Yields a function that scores the pairs of a round.

        The function's reply is empty where the cross-encoder fails or the request's seconds have passed. ApiError 503
        where too many calls wait.
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
            if not is_lost or loop.time() >= until:  # late calls count too: they show how slow the scorer is
                answered()


def open_versions_reranker(version: Version) -> Reranker | None:
    """Open a version's re-ranker without its cross-encoder. InputError if a file is not as published."""
    workdir, now = locate(version.workdir), version.now
    published = {kind: current.artifact(workdir, now, kind) for kind in KINDS if kind in now.artifacts}
    for artifact in published.values():
        artifact.verify()
    with version.reading() as leaf_map:
        return open_reranker(now.spec, published, leaf_map, reads=False)
