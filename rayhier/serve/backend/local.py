"""Shard groups and the cross-encoder in this process, for an embedded server."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from rayhier.arrays import Floats
from rayhier.search.retrieve import RERANKER, Reading
from rayhier.serve.backend.cross_encoder import CrossEncoderReplica
from rayhier.serve.backend.shards import ShardGroup
from rayhier.serve.backend.version import Version
from rayhier.serve.errors import LostError

PING_SECONDS = 5.0
"""Seconds that `answers` waits for the cross-encoder to finish the pairs that it is reading; after these it counts as
not answering."""
log = logging.getLogger("ray.serve")


class LocalShards:
    """A range of leaves, scanned in a thread of this process."""

    def __init__(self, name: str, version: Version, leaves: range) -> None:
        """Open a range of a version's leaves; InputError where a file is not as published."""
        self.name, self._group = name, ShardGroup(version, leaves)

    async def read(self, work: Reading) -> Any:
        """Do a piece of a search's work, such as a scan; LostError where it fails."""
        try:
            return await self._group.read(work)
        except Exception as error:
            log.warning("%s is lost: %s: %s", self.name, type(error).__name__, error)
            raise LostError(self.name) from error

    async def answers(self) -> bool:
        """Return True if the leaves answer a search now."""
        try:
            await self._group.ping()
        except Exception as error:  # noqa: BLE001  any failure means no answer
            log.warning("%s is lost: %s: %s", self.name, type(error).__name__, error)
            return False
        return True

    async def check_health(self) -> None:
        """Open files again where they were changed while open."""
        try:
            await self._group.check_health()
        except Exception as error:  # noqa: BLE001  tried again later; until then the group is lost
            log.warning("%s: cannot be opened anew: %s", self.name, error)


class LocalScorer:
    """The cross-encoder, which scores pairs in a thread of this process."""

    def __init__(self, version: Version, threads: int) -> None:
        """Open the cross-encoder of an index's version; InputError where a file is not as published.

        `threads` is the number of threads that torch uses.
        """
        self._replica = CrossEncoderReplica(version, threads)

    async def score(self, queries: Sequence[str], items: Sequence[str], seconds: float) -> Floats:
        """Score each query [n] with its item (document) [n]: [n]; LostError where no answer comes within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                return await self._replica.score(queries, items)
        except Exception as error:
            log.warning("%s gave no answer: %s", RERANKER, type(error).__name__)
            raise LostError(RERANKER) from error

    async def answers(self) -> bool:
        """Return True if the cross-encoder scores pairs now, within 5 seconds."""
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self._replica.ping()
        except Exception:  # noqa: BLE001  any failure means no scores
            return False
        return True
