"""Servers that follow the Writer: a change is answered once each of them sees it, or may answer requests no more.

A reader asks the Writer again and again for what is new, and each time says what its requests see. For `SECONDS` after
it sent such a call it may answer requests by what it then knows. The Writer counts the same time from the arrival of
the call, which is later: no two clocks are compared. A reader whose time is over reads storage before each request.
"""

import asyncio
import contextlib

from rayhier.search.snapshot import Seen
from rayhier.storage.writer_lease import clock

SECONDS = 3.0
"""Seconds for which a reader may answer requests after it sent a call that was answered."""
HELD_SECONDS = 0.5
"""Seconds after which the Writer answers a reader's call where nothing is new."""


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
