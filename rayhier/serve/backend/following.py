"""Keeps what an ingress's requests see at what the Writer says; where it is silent, at what storage says.

While the Writer's last answer counts (`readers.py`), a request begins at once: no change is answered that it would not
see. Otherwise storage is looked at before each request; requests that begin meanwhile share the next look.
"""

import asyncio
import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rayhier.serve.backend.batching import Batches
from rayhier.serve.backend.follower import Follower
from rayhier.serve.backend.readers import SECONDS
from rayhier.serve.errors import ApiError, LostError
from rayhier.storage.writer_lease import clock

if TYPE_CHECKING:  # imports Ray
    from rayhier.serve.backend.handles import WriterHandle

BEHIND_SECONDS = 0.1
"""Seconds between two calls of a Writer that has not seen yet what was read from storage."""
AGAIN_SECONDS = 0.2
"""Seconds between two calls to a Writer that does not answer."""
WRITER = "writer"
"""Name of the Writer's deployment."""
log = logging.getLogger("ray.serve")


class Following:
    def __init__(self, follower: Follower, writer: "WriterHandle") -> None:
        """Follow once `run` runs; until the Writer has answered, storage counts."""
        self._follower, self._writer, self._name = follower, writer, uuid.uuid4().hex
        self._until = 0.0
        self._looks: Batches[None, None] = Batches(self._look, 1_000_000)

    @property
    def lost(self) -> list[str]:
        return [] if clock() < self._until else [WRITER]

    async def __call__(self) -> None:
        """Return once a request that begins now sees every change that was answered before."""
        if clock() >= self._until:
            await self._looks(None)

    async def run(self) -> None:
        while True:
            sent = clock()
            try:
                newest = await self._writer.newest(self._name, self._follower.seen)
                async with self._follower.lock:
                    await self._follower.show(newest)
                self._until = sent + SECONDS
                if self._follower.seen != newest.seen:  # the Writer has yet to see what was read here from storage
                    await asyncio.sleep(BEHIND_SECONDS)
            except (LostError, ApiError):
                await asyncio.sleep(AGAIN_SECONDS)
            except Exception:
                log.exception("what the Writer says cannot be served; storage is read instead")
                await asyncio.sleep(AGAIN_SECONDS)

    async def _look(self, requests: Sequence[None]) -> list[None]:
        """Look at storage, once for all requests; where that fails, they see what is known."""
        try:
            await self._follower.look()
        except Exception as error:  # noqa: BLE001  searches go on
            log.warning("storage does not say what is newest: %s: %s", type(error).__name__, error)
        return [None] * len(requests)
