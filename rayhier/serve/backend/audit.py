"""Measures recall as served: after some queries are answered, they are also searched exactly, in the background.

An audit compares a query with all documents by their stored vectors, part by part and group by group. An audit rests
after each part, in proportion to the part's CPU time. So audits take little of one CPU, even if the index is large.
A query that is drawn during another audit is skipped and counted.
Shapes: M numbers of a vector, K results.
"""

import asyncio
import logging
import math
import time
from collections import deque
from dataclasses import replace

import numpy as np

from rayhier.arrays import Floats
from rayhier.dataset.ranking import Ranking, merge
from rayhier.index.stats import ServedRecall
from rayhier.search.request.request import Request
from rayhier.search.retrieve import Exact, Found
from rayhier.search.routing.routes import Routes
from rayhier.serve.args import Auditing
from rayhier.serve.backend.engine import Engine, View
from rayhier.serve.errors import LostError
from rayhier.serve.metrics import Metrics
from rayhier.serve.threads import begin

DEPTH = 10
"""Largest number of results of a query that are compared with the exact results."""
WINDOW = 1_000
"""Number of newest audited queries over which recall as served is averaged."""
PART = 8_000_000
"""Largest number of multiply-adds, approximately, in a part of an exact search. A part takes a few milliseconds."""
DISPATCH = 0.001
"""Seconds of CPU, approximately, to send a part of an exact search to a group and to merge its result."""
AFTER = 0.05
"""Seconds between an answer and its exact search, so that the answer is sent first."""
WITHIN = 1e-5
"""Difference below which two scores count as equal. Products of vectors may be summed up in different orders."""
log = logging.getLogger("ray.serve")


class Audit:
    """Measures which share of the exact best documents the searches of an engine find by vectors."""

    def __init__(self, engine: Engine, settings: Auditing, metrics: Metrics | None = None) -> None:
        self._engine, self._settings, self._metrics = engine, settings, metrics
        self._random = np.random.default_rng()
        self._window: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._model: str | None = None
        self._task: asyncio.Task[None] | None = None
        self.skipped = 0
        if settings.share:
            engine.answered = self.draw

    @property
    def recall(self) -> ServedRecall | None:
        """Mean recall of the newest audited queries of the served model, over all versions. None before an audit."""
        if not self._window or self._model != self._engine.view.seen.model:
            return None
        return ServedRecall.of([share for _, share in self._window], self._window[0][0])

    def draw(self, request: Request, routes: Routes, found: Found, view: View) -> None:
        """Draw queries of an answered search and audit the first, if vectors in leaves ordered the results."""
        if found.near is None:
            return
        k = min(request.k, DEPTH)
        for query in np.flatnonzero(self._random.random(len(found.lost)) < self._settings.share).tolist():
            if found.lost[query]:
                continue
            if self._task is not None and not self._task.done():
                self._skip()
                continue
            work = Exact(routes.encoded.numpy[query : query + 1], k, request.where)
            audit = self._audit(work, found.near.score_QK[query, :k], view)
            self._task = begin(audit)

    def _skip(self) -> None:
        self.skipped += 1
        if self._metrics is not None:
            self._metrics.skipped()

    async def _audit(self, work: Exact, near_K: Floats, view: View) -> None:
        await asyncio.sleep(AFTER)
        try:
            best = await self._searched(work, view)
        except Exception:
            log.exception("a query cannot be searched exactly")
            best = None
        if best is None:
            return self._skip()
        share = share_found(near_K, best.score_QK[0])
        if share is None:
            return None
        if self._model != view.seen.model:
            self._window.clear()
            self._model = view.seen.model
        self._window.append((time.time(), share))
        if self._metrics is not None and (recall := self.recall) is not None:
            self._metrics.audited(recall.mean, recall.low, recall.high)
        return None

    async def _searched(self, work: Exact, view: View) -> Ranking | None:
        """Search exactly for a query. None if a group does not answer, or another version is served before the end."""
        groups, best = view.groups, Ranking.none(1)
        rows = int(view.count_L.sum()) / max(1, len(groups))
        parts = max(1, math.ceil(rows * work.query_QM.shape[1] / PART))
        for group in groups:
            for part in range(parts):
                if self._engine.view.seen.version != view.seen.version:
                    return None
                try:
                    ranking, seconds = await group.read(replace(work, part=part, parts=parts), view.seen)
                except LostError:
                    return None
                best = merge([best, ranking], work.k)
                seconds += DISPATCH
                await asyncio.sleep(seconds / self._settings.cpu - seconds)
        return best


def share_found(near_K: Floats, best_K: Floats) -> float | None:
    """Return the share of the best documents (scores `best_K`) that a search with scores `near_K` found.

    Documents with the same score as the last of the best count as found. Scores of -inf are ignored. None if no
    document is among the best.

    >>> share_found(np.array([0.9, 0.7, 0.5]), np.array([0.9, 0.8, 0.7]))
    0.6666666666666666
    """
    best_K = best_K[np.isfinite(best_K)]
    if not len(best_K):
        return None
    return float((near_K[: len(best_K)] >= best_K[-1] - WITHIN).sum() / len(best_K))
