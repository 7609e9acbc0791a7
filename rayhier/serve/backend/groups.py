"""A shard group as the engine uses it: scans of several requests at the same time are made together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from rayhier.dataset.ranking import Ranking, split
from rayhier.search.retrieve import Reading, Scan
from rayhier.search.snapshot import Seen
from rayhier.serve.backend.batching import Batches
from rayhier.serve.metrics import Metrics

AT_ONCE = 2
"""Most scans that a group makes at a time, where requests are scanned together."""


@dataclass(frozen=True)
class ShardRange:
    name: str
    leaves: range


class Shards(Protocol):
    """Interface of a group's shards, in this process or in deployments. LostError if they do not answer in time."""

    async def read(self, work: Reading, seen: Seen) -> Any: ...

    async def open(self, number: int) -> None:
        """Open a version too, in all replicas of the group."""

    async def answers(self) -> bool: ...


class Group:
    """A range of leaves and their shards; scans of several requests are gathered into batches."""

    def __init__(
        self,
        part: ShardRange,
        shards: Shards,
        together: int = 64,
        at_once: int = AT_ONCE,
        metrics: Metrics | None = None,
    ) -> None:
        """Scan for at most `together` queries at once, with at most `at_once` such scans at a time."""
        self.name, self.leaves, self._shards = part.name, part.leaves, shards
        self._batches: Batches[tuple[Scan, Seen], Ranking] = Batches(self._scanned, together, "scan", metrics, at_once)

    async def read(self, work: Reading, seen: Seen) -> Any:
        """Do a piece of a search's work in the group's leaves. LostError if no answer comes.

        Scans that arrive while others are at work are made together if their `k`, their beam and what they see are
        equal.
        """
        if not isinstance(work, Scan):
            return await self._shards.read(work, seen)
        # A scan with a filter is made alone: two with equal filters seldom arrive together.
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
