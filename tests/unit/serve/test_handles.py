"""Deployments behind handles: lost when they fail, back once they answer, full when they say so."""

import asyncio

import numpy as np
import pytest
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError

from rayhier.search.retrieve import Flat, Scan
from rayhier.serve.backend import handles as module
from rayhier.serve.backend.handles import ShardHandle
from rayhier.serve.errors import ApiError, LostError

from .stand_ins import SEEN
from .virtual_time import run

RUN = run

SCAN = Scan(np.zeros((1, 2), np.float32), np.zeros((1, 1), np.int64), 1)
LEVEL = Flat(None, 1)


class Response:
    """What is awaited for an outcome, and may be cancelled where it is made."""

    def __init__(self, method):
        self.method, self.outcome = method, method.outcome

    def __await__(self):
        return self.outcome().__await__()

    def cancel(self):
        self.method.cancelled += 1


class Method:
    """`handle.NAME`: what `remote` returns is awaited for its outcome, and may be cancelled."""

    def __init__(self, outcome):
        self.outcome, self.calls, self.cancelled = outcome, 0, 0

    def remote(self, *_, **__):
        self.calls += 1
        return Response(self)


class Handle:
    """A deployment that does as told."""

    def __init__(self, *_):
        self.read, self.score, self.ping, self.alive = (Method(self.answer) for _ in range(4))

    async def answer(self):
        return []

    async def die(self):
        raise RayActorError

    async def hang(self):
        await asyncio.Event().wait()

    async def refuse(self):
        raise BackPressureError(1, 1)


@pytest.fixture
def handle(monkeypatch):
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    return Handle()


def group_of(handle, seconds=1.0):
    return ShardHandle("shards-0", handle, seconds, ping_seconds=0.05)


@pytest.mark.parametrize("failing", ["die", "hang"])
async def test_lost_until_a_ping_comes_back(handle, failing):
    group = group_of(handle, seconds=0.01)
    assert await group.read(SCAN, SEEN) == []
    handle.read.outcome, handle.ping.outcome = getattr(handle, failing), handle.die
    for _ in range(4):
        with pytest.raises(LostError, match="shards-0"):
            await group.read(SCAN, SEEN)
    assert handle.read.calls == (3 if failing == "die" else 2)  # once lost it is not asked
    assert not await group.answers()
    handle.read.outcome = handle.ping.outcome = handle.answer
    await group._back
    assert await group.read(SCAN, SEEN) == []
    assert await group.answers()


async def test_what_a_lost_group_was_asked_ends_at_once(handle):
    """A replica dies, and no other is there: what was asked of it ends with the first who sees it."""
    group = group_of(handle, seconds=60.0)
    group.another_seconds = 0.05
    handle.read.outcome = handle.ping.outcome = handle.hang
    asked = [asyncio.create_task(group.read(LEVEL, SEEN)) for _ in range(3)]
    await asyncio.sleep(0.01)

    async def dies_then_hangs():
        handle.read.outcome = handle.hang
        raise RayActorError

    handle.read.outcome = dies_then_hangs
    with pytest.raises(LostError, match="shards-0"):
        await group.read(SCAN, SEEN)
    async with asyncio.timeout(1.0):
        ended = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in ended] == [LostError] * 3
    assert handle.read.cancelled == 4  # the three, and what was asked once more of a replica that is not there
    assert group.lost


async def test_a_late_group_without_a_sign_of_life_is_lost_at_once(handle):
    """Serve keeps calls of a deployment without a replica waiting: they end long before their time."""
    group = ShardHandle("shards-0", handle, 60.0, 0.05, late_seconds=0.02, alive_seconds=0.02)
    handle.read.outcome = handle.alive.outcome = handle.ping.outcome = handle.hang
    asked = [asyncio.create_task(group.read(SCAN, SEEN)) for _ in range(100)]
    async with asyncio.timeout(1.0):
        ended = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(one) for one in ended} == {LostError}
    assert (handle.alive.calls, group.lost) == (2, True)
    handle.read.outcome = handle.ping.outcome = handle.answer
    await group._back
    assert await group.read(SCAN, SEEN) == []


async def test_a_late_group_that_is_alive_has_all_its_time(handle):
    group = ShardHandle("shards-0", handle, 60.0, 0.05, late_seconds=0.02, alive_seconds=0.02)
    ends = asyncio.Event()

    async def at_last():
        await ends.wait()
        return []

    handle.read.outcome = at_last
    asked = [asyncio.create_task(group.read(LEVEL, SEEN)) for _ in range(3)]
    await asyncio.sleep(0.2)
    assert (handle.alive.calls, handle.ping.calls, group.lost) == (1, 0, False)
    ends.set()
    assert await asyncio.gather(*asked) == [[]] * 3


async def test_what_a_dying_replica_was_asked_another_answers(handle):
    group = group_of(handle)

    async def die_once():
        handle.read.outcome = handle.answer
        raise RayActorError

    handle.read.outcome = die_once
    assert await group.read(SCAN, SEEN) == []
    assert handle.read.calls == 2
    assert group._back is None


async def test_a_full_group_is_not_lost(handle):
    group = group_of(handle)
    handle.read.outcome = handle.refuse
    with pytest.raises(ApiError, match="shards-0 has too many requests waiting") as caught:
        await group.read(SCAN, SEEN)
    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "1"})
    handle.ping.outcome = handle.refuse
    assert await group.answers()
    handle.read.outcome = handle.answer
    assert await group.read(SCAN, SEEN) == []
