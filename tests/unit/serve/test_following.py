"""What was answered is seen by every ingress, whether or not it hears of the Writer.

integration/test_served_writes.py kills the processes of a Writer and of ingresses.
"""

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from rayhier.search.snapshot import Seen
from rayhier.serve.backend import follower as module
from rayhier.serve.backend.follower import SECONDS, WRITER, Following, Readers
from rayhier.serve.errors import LostError

from .virtual_time import run

RUN = run
BEFORE, NOW = Seen("0123456789ab", 1, 6), Seen("0123456789ab", 1, 7)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(module, "clock", lambda: asyncio.get_running_loop().time())


async def seconds_of(answer):
    began = module.clock()
    await answer
    return module.clock() - began


async def test_a_change_is_answered_once_every_reader_sees_it_or_may_answer_no_more():
    readers = Readers()
    assert await seconds_of(readers.see(NOW)) == SECONDS, "readers of a Writer before may answer till then"
    assert await seconds_of(readers.see(NOW)) == 0
    readers.called("one", NOW)
    assert await seconds_of(readers.see(NOW)) == 0
    readers.called("one", BEFORE)
    readers.called("other", BEFORE)
    answer = asyncio.create_task(seconds_of(readers.see(NOW)))
    await asyncio.sleep(0.25 * SECONDS)
    readers.called("one", NOW)
    assert await answer == SECONDS, "the other one does not follow"
    assert await seconds_of(readers.see(NOW)) == 0, "nobody waits for it any more"


async def test_an_ingress_reads_storage_while_the_writer_is_silent():
    follower = SimpleNamespace(lock=asyncio.Lock(), seen=NOW, show=AsyncMock(), look=AsyncMock())
    writer = SimpleNamespace(newest=AsyncMock(return_value=SimpleNamespace(seen=NOW)))
    following = Following(follower, writer)
    await following()
    assert (following.lost, follower.look.await_count) == ([WRITER], 1)

    async def says(*_):
        await asyncio.sleep(0.1 * SECONDS)
        return SimpleNamespace(seen=NOW)

    writer.newest = AsyncMock(side_effect=says)
    running = asyncio.create_task(following.run())
    await asyncio.sleep(2 * SECONDS)
    await following()
    assert (following.lost, follower.look.await_count) == ([], 1)
    writer.newest.side_effect = LostError(WRITER)
    await asyncio.sleep(1.2 * SECONDS)
    follower.look.side_effect = OSError("no route to storage")
    await following()  # sees what is known
    assert (following.lost, follower.look.await_count) == ([WRITER], 2)
    writer.newest.side_effect = says
    await asyncio.sleep(2 * SECONDS)
    assert following.lost == []
    running.cancel()
