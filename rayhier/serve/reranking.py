"""Re-ranks what a served search found, as offline search does; the cross-encoder is a deployment of its own."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from rayhier.arrays import Floats
from rayhier.dataset.ranking import Ranking
from rayhier.scores.spending import ScorerError
from rayhier.search.rerank import Reranker
from rayhier.search.segment import DOC_ID, VECTOR

RERANKER = "reranker"
"""Name of the deployment that scores pairs, in answers that lack it."""
AT_ONCE = 16
"""Requests whose calls are spent at a time; they mostly wait for scores."""
Score = Callable[[Sequence[str], Sequence[str]], Awaitable[Floats]]
"""Queries and documents, pair by pair -> scores [n]."""
log = logging.getLogger("ray.serve")


class Reranking:
    """Spends the calls of requests, each in a thread that waits for the scores of its rounds."""

    def __init__(self, reranker: Reranker, score: Score) -> None:
        """Spend calls as a re-ranker does; `score` asks the deployment."""
        self._reranker, self._score = reranker, score
        self._threads = ThreadPoolExecutor(AT_ONCE, "rerank")

    @property
    def everywhere(self) -> bool:
        """Whether documents of all leaves may be read, not only of those that a question visits."""
        return self._reranker.spec.pool == "all"

    def pool(self, rows: int) -> int:
        """Number of documents of a search that may be read, of an index of some rows."""
        return self._reranker.pool(rows)

    async def __call__(
        self, texts: Sequence[str], query_QM: Floats, found: Ranking, k: int, budget: int
    ) -> tuple[Ranking, bool]:
        """Re-rank rankings whose documents are whole; the best k, and whether the cross-encoder has answered.

        Where it has not, the ranking is as it was found.
        """
        loop = asyncio.get_running_loop()

        def read(queries: Sequence[str], items: Sequence[str]) -> Floats:
            return asyncio.run_coroutine_threadsafe(self._answered(queries, items), loop).result()

        reranker = replace(self._reranker, read=read)
        try:
            return await loop.run_in_executor(self._threads, reranker, texts, query_QM, found, k, budget), True
        except ScorerError as error:
            log.warning("%s is lost: %s", RERANKER, error)
            return unread(found, k), False

    async def _answered(self, queries: Sequence[str], items: Sequence[str]) -> Floats:
        return await self._score(queries, items)


def unread(found: Ranking, k: int) -> Ranking:
    """Ranking of the best k as a search found them, without what only re-ranking needs."""
    inner = [name for name in (DOC_ID, VECTOR) if name in found.documents.column_names]
    score_QK, row_QK = found.score_QK[:, :k], found.row_QK[:, :k]
    return replace(found, score_QK=score_QK, row_QK=row_QK, documents=found.documents.drop_columns(inner))
