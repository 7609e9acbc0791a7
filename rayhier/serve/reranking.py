"""Re-ranks what a served search found, as offline search does; the cross-encoder is a deployment of its own."""

import asyncio
import logging
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from rayhier.arrays import Floats
from rayhier.dataset.ranking import Ranking, compact
from rayhier.scores.call_budget import ScorerError
from rayhier.search.rerank import Asking, Reranker
from rayhier.search.segment import DOC_ID, VECTOR
from rayhier.serve.admission import Admission
from rayhier.serve.errors import LostError, invalid
from rayhier.spec.search import Budget

RERANKER = "reranker"
"""Name of the deployment that scores pairs, in answers that lack it."""
WAITING = 0.5
"""Share of a request's time for calls that it may wait for those of others, before it is refused."""
log = logging.getLogger("ray.serve")


class PairScores(Protocol):
    """What scores pairs: a cross-encoder elsewhere."""

    async def score(self, queries: Sequence[str], items: Sequence[str], seconds: float) -> Floats:
        """Scores [n] of queries [n] and documents [n]; LostError where they are not there within some seconds."""

    async def answers(self) -> bool:
        """Whether it answers now."""


class Reranking:
    """Spends the calls of requests in rounds: the loop waits for scores, a thread computes what is read next."""

    def __init__(self, reranker: Reranker, scores: PairScores, seconds: float = 60.0, most: float = math.inf) -> None:
        """Spend calls as a re-ranker does; those of a request may take some seconds, all rounds together.

        Its questions may have at most so many documents that may be read.
        """
        self._reranker, self._scores, self._seconds, self._most = reranker, scores, seconds, most
        self._thread = ThreadPoolExecutor(1, "rerank")
        self.admission = Admission(WAITING * seconds)
        """Counts the calls that wait; ApiError 503 where further ones would wait for too long."""

    @property
    def spec(self) -> Budget:
        """Calls of a question, and the documents that they may be made for."""
        return self._reranker.spec

    def check(self, questions: int, documents: int) -> None:
        """ApiError 422 where questions have too many documents that may be read: texts and vectors of all are held."""
        if documents > self._most:
            said = f"rerank: got {questions} questions, which may read some of {documents} documents together"
            raise invalid(f"{said}; allowed: {self._most:g}, limits.max_pool")

    async def answers(self) -> bool:
        """Whether the cross-encoder answers now."""
        return await self._scores.answers()

    async def __call__(
        self, texts: Sequence[str], query_QM: Floats, found: Ranking, k: int, budget: int
    ) -> tuple[Ranking, bool]:
        """Re-rank rankings whose documents have their vectors; the best k, and whether the scorer answered in time.

        Where it has not, the ranking is as it was found.
        """
        loop = asyncio.get_running_loop()
        until, scores = loop.time() + self._seconds, None
        asking = self._reranker.asking(texts, query_QM, found, k, budget)
        with self.admission.counting(len(texts) * budget) as answered:
            try:
                while True:
                    step = await loop.run_in_executor(self._thread, _step, asking, scores)
                    if isinstance(step, Ranking):
                        answered()
                        return _shown(step), True
                    scores = await self._scores.score(*step, until - loop.time())
            except (LostError, ScorerError) as error:
                log.warning("not re-ranked: %s", error)
                if loop.time() >= until:  # calls that were late tell how fast they are made, those not made do not
                    answered()
        return unread(found, k), False


def _step(asking: Asking, scores: Floats | None) -> tuple[list[str], list[str]] | Ranking:
    """The pairs to score next, or the ranking where no more are; a future cannot be told of StopIteration."""
    try:
        return asking.send(scores)
    except StopIteration as end:
        found: Ranking = end.value
        return found


def unread(found: Ranking, k: int) -> Ranking:
    """Ranking of the best k as a search found them, without what only re-ranking needs."""
    inner = [name for name in (DOC_ID, VECTOR) if name in found.documents.column_names]
    best, rows = found.score_QK[:, :k], found.row_QK[:, :k]
    return _shown(replace(found, score_QK=best, row_QK=rows, documents=found.documents.drop_columns(inner)))


def _shown(ranking: Ranking) -> Ranking:
    """A ranking without the documents of the pool that it does not show."""
    score_QK, row_QK, documents = compact(ranking.score_QK, ranking.row_QK, ranking.documents)
    return replace(ranking, score_QK=score_QK, row_QK=row_QK, documents=documents)
