"""The deployment that scores pairs of a query and a document, for requests that re-rank."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from rayhier.arrays import Floats
from rayhier.scores.settings import open_scorer
from rayhier.serve.batching import Batches
from rayhier.serve.version import Version
from rayhier.spec import InputError
from rayhier.storage import current
from rayhier.storage.paths import locate

PAIRS = 512
"""Pairs of several requests that are scored together, at most."""


class CrossEncoderReplica:
    """Scores pairs by the cross-encoder of a version; those of several requests together."""

    def __init__(self, version: Version, threads: int) -> None:
        """Open the cross-encoder, every file verified."""
        torch.set_num_threads(threads)
        spec = version.now.spec
        if spec.cross_encoder is None:
            raise InputError("cross_encoder: got none; allowed: an index whose spec has one")
        published = current.artifact(locate(version.workdir), version.now, "cross_encoder")
        published.verify()
        self._scorer = open_scorer(published, spec.cross_encoder)
        # One thread: torch's own threads do the work. The replica's loop stays free for health checks.
        self._thread = ThreadPoolExecutor(1, "score")
        self._batches: Batches[tuple[Sequence[str], Sequence[str]], Floats] = Batches(self._scored, PAIRS)

    async def score(self, queries: Sequence[str], items: Sequence[str]) -> Floats:
        """Scores [n] of pairs, in their order."""
        scores, _ = await self._batches((queries, items), len(queries))
        return scores

    async def ping(self) -> None:
        """Return once the scorer is free; an answer means that this replica scores."""
        await self.score(["ready"], ["ready"])

    async def _scored(self, asked: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[Floats]:
        queries, items = ([text for one in asked for text in one[side]] for side in (0, 1))
        score_N = await asyncio.get_running_loop().run_in_executor(self._thread, self._scorer, queries, items)
        return np.split(score_N, np.cumsum([len(one[0]) for one in asked])[:-1])
