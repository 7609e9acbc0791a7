"""Keeps what an ingress's requests see at what the Writer says, or at what storage says if the Writer is silent.

A change is answered once each reader (a server that follows the Writer) sees it, or may answer requests no more. A
reader asks the Writer again and again for what is new, and each time says what its requests see. For `SECONDS` after it
sent such a call it answers requests at once, by what it then knows. The Writer counts the same time from the arrival of
the call, which is later: no two clocks are compared. A reader whose time is over reads storage before each request, and
requests that begin meanwhile share the next look.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rayhier.search.snapshot import Seen
from rayhier.serve.backend.batching import Batches
from rayhier.serve.backend.follower import Follower
from rayhier.serve.errors import ApiError, LostError
from rayhier.storage.writer_lease import clock

if TYPE_CHECKING:  # imports Ray
    from rayhier.serve.backend.handles import WriterHandle

SECONDS = 3.0
"""Seconds for which a reader may answer requests after it sent a call that was answered."""
HELD_SECONDS = 0.5
"""Seconds after which the Writer answers a reader's call where nothing is new."""
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


class Readers:
    """The readers of a Writer: what the requests of each see, and until when it may answer them by that."""

    def __init__(self) -> None:
        """Begin as a Writer begins: readers of an earlier one may still answer, and see nothing of this one."""
        self._earlier = clock() + SECONDS
        self._readers = dict[str, tuple[Seen, float]]()
        self._changed = asyncio.Event()

    def called(self, name: str, seen: Seen) -> None:
        """Note what the requests of a reader see, which has just called."""
        now = clock()
        self._readers = {other: entry for other, entry in self._readers.items() if entry[1] > now}
        self._readers[name] = seen, now + SECONDS
        self.changed()

    def changed(self) -> None:
        """Wake those who wait: a reader has called, or requests of the Writer see something new."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, until: float) -> None:
        """Wait until something changes, but at most until a time of `writer_lease.clock`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(until - clock()):
                await self._changed.wait()

    async def see(self, seen: Seen) -> None:
        """Return once the requests of every reader see a state of the index, or it may answer no more."""
        while (until := self._late(seen)) > clock():
            await self.wait(until)

    def _late(self, state: Seen) -> float:
        """Return until when a reader may answer whose requests do not see a state of the index."""
        late = [until for seen, until in self._readers.values() if seen.log < state.log or seen.version < state.version]
        return max([self._earlier, *late])
