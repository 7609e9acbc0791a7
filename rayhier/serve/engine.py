"""From questions to answers: encode -> route -> scan, in the groups that hold the leaves -> merge.

Shapes: Q queries, M embedding size, B leaves probed (beam).
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from rayhier.embed.encode import TextEncoder
from rayhier.model.router import Router, route_all
from rayhier.search.answer import Answer, Partial, merge
from rayhier.search.lists import Ints
from rayhier.storage.columns import Floats

Asked = Sequence[str] | Floats
"""Questions: texts, or their vectors [q, m]."""


class LostError(Exception):
    """A group of shards does not answer."""


class Group(Protocol):
    """Shards that lie together, wherever that is."""

    @property
    def name(self) -> str:
        """As answers call it."""

    @property
    def leaves(self) -> range:
        """Leaves that its shards hold."""

    async def search(self, query_QM: Floats, leaves_QB: Ints, k: int) -> list[Partial]:
        """The best k of each query there; LostError where nobody answers."""

    async def answers(self) -> bool:
        """Whether it would answer now."""


@dataclass(frozen=True)
class Led:
    """Where questions lead."""

    query_QM: Floats
    leaves_QB: Ints
    log_prob_QB: Floats
    encode_ms: float
    route_ms: float


@dataclass(frozen=True)
class Found:
    """An answer for each question, the names of lost groups that it needed, and milliseconds by part."""

    answers: list[Answer]
    lost: list[list[str]]
    ms: dict[str, float]


class Engine:
    """A model here, shards elsewhere; `total` documents in the corpus."""

    def __init__(self, encoder: TextEncoder, router: Router, groups: Sequence[Group], total: int) -> None:
        self.encoder, self.router, self.groups, self.total = encoder, router, groups, total
        # torch stays off the replica's loop; one call at a time, so that its threads do not crowd one another.
        self._thread = ThreadPoolExecutor(1, "encode")

    async def search(self, asked: Asked, k: int, beam: int) -> Found:
        """The best k of each question among its `beam` most probable leaves."""
        began = time.perf_counter()
        led = await self.route(asked, beam)
        scanning = time.perf_counter()
        parts, lost = await self._scan(led, k)
        done = time.perf_counter()
        answers = [
            merge(parts_of_one, leaves, k, self.total)
            for parts_of_one, leaves in zip(parts, led.leaves_QB.tolist(), strict=True)
        ]
        ms = {"encode": led.encode_ms, "route": led.route_ms, "scan": 1e3 * (done - scanning)}
        ms["total"] = 1e3 * (time.perf_counter() - began)
        return Found(answers, lost, {name: round(value, 3) for name, value in ms.items()})

    async def route(self, asked: Asked, beam: int) -> Led:
        """The `beam` most probable leaves of each question."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._lead, asked, beam)

    async def lost(self) -> list[str]:
        """Names of the groups that do not answer now."""
        there = await asyncio.gather(*(group.answers() for group in self.groups))
        return [group.name for group, answers in zip(self.groups, there, strict=True) if not answers]

    def _lead(self, asked: Asked, beam: int) -> Led:
        began = time.perf_counter()
        query_QM = asked if isinstance(asked, np.ndarray) else self.encoder.encode(asked)
        encoded = time.perf_counter()
        leaves_QB, log_prob_QB = route_all(self.router, torch.from_numpy(query_QM), beam)
        done = time.perf_counter()
        return Led(query_QM, leaves_QB.numpy(), log_prob_QB.numpy(), 1e3 * (encoded - began), 1e3 * (done - encoded))

    async def _scan(self, led: Led, k: int) -> tuple[list[list[Partial]], list[list[str]]]:
        """Parts of each question's answer, and the names of the groups that should have had one."""
        q = len(led.query_QM)
        parts: list[list[Partial]] = [[] for _ in range(q)]
        lost: list[list[str]] = [[] for _ in range(q)]

        async def ask(group: Group) -> None:
            within = (led.leaves_QB >= group.leaves.start) & (led.leaves_QB < group.leaves.stop)
            rows = np.flatnonzero(within.any(axis=1))
            if not len(rows):
                return
            try:
                found = await group.search(led.query_QM[rows], led.leaves_QB[rows], k)
            except LostError:
                for row in rows:
                    lost[row].append(group.name)
                return
            for row, part in zip(rows, found, strict=True):
                parts[row].append(part)

        await asyncio.gather(*(ask(group) for group in self.groups))
        return parts, lost
