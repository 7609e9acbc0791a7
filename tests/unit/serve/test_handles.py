"""Deployments behind handles: lost when they fail, back once they answer, full when they say so."""

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

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


class Method:
    """`handle.NAME`: what `remote` returns is awaited for its outcome, and may be cancelled."""

    def __init__(self):
        self.outcome, self.calls, self.cancelled = answer, 0, Mock()

    def remote(self, *_, **__):
        self.calls += 1
        outcome = self.outcome  # of this call, whatever comes later
        return type("Response", (), {"__await__": lambda _: outcome().__await__(), "cancel": self.cancelled})()


answer, die = AsyncMock(return_value=[]), AsyncMock(side_effect=RayActorError)
refuse = AsyncMock(side_effect=BackPressureError(1, 1))


async def hang():
    await asyncio.Event().wait()


@pytest.fixture
def handle(monkeypatch):
    """A deployment that answers, until a method's outcome is another."""
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    return SimpleNamespace(read=Method(), ping=Method(), alive=Method())


def group_of(handle, seconds=1.0, **more):
    return ShardHandle("shards-0", handle, seconds, ping_seconds=0.05, **more)


async def is_back(group):
    await group._back
    return await group.read(SCAN, SEEN) == [] and await group.answers()


@pytest.mark.parametrize(("failing", "calls"), [(die, 3), (hang, 2)])
async def test_lost_until_a_ping_comes_back(handle, failing, calls):
    group = group_of(handle, seconds=0.01)
    assert await group.read(SCAN, SEEN) == []
    handle.read.outcome, handle.ping.outcome = failing, die
    for _ in range(4):
        with pytest.raises(LostError, match="shards-0"):
            await group.read(SCAN, SEEN)
    assert handle.read.calls == calls, "once lost it is not asked"
    assert not await group.answers()
    handle.read.outcome = handle.ping.outcome = answer
    assert await is_back(group)


async def test_what_a_lost_group_was_asked_ends_at_once(handle):
    """A replica dies, and no other is there: what was asked of it ends with the first who sees it."""
    group = group_of(handle, seconds=60.0)
    group.another_seconds = 0.05
    handle.read.outcome = handle.ping.outcome = hang
    asked = [asyncio.create_task(group.read(LEVEL, SEEN)) for _ in range(3)]
    await asyncio.sleep(0.01)

    async def dies_then_hangs():
        handle.read.outcome = hang
        raise RayActorError

    handle.read.outcome = dies_then_hangs
    with pytest.raises(LostError, match="shards-0"):
        await group.read(SCAN, SEEN)
    async with asyncio.timeout(1.0):
        ended = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in ended] == [LostError] * 3
    assert handle.read.cancelled.call_count == 4, "the three, and what was asked of a replica that is not there"


@pytest.mark.parametrize("is_alive", [False, True])
async def test_a_late_group_is_lost_at_once_unless_it_gives_a_sign_of_life(handle, is_alive):
    """Serve keeps calls of a deployment without a replica waiting: they end long before their time."""
    group, ends = group_of(handle, 60.0, late_seconds=0.02, alive_seconds=0.02), asyncio.Event()
    handle.read.outcome = ends.wait
    if not is_alive:
        handle.alive.outcome = handle.ping.outcome = hang
    asked = [asyncio.create_task(group.read(LEVEL, SEEN)) for _ in range(100)]
    await asyncio.sleep(0.2)
    assert (handle.alive.calls, group.lost) == (1 if is_alive else 2, not is_alive)
    ends.set()
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(one) for one in ended} == {bool if is_alive else LostError}
    handle.read.outcome = handle.ping.outcome = answer
    assert is_alive or await is_back(group)


async def test_what_a_dying_replica_was_asked_another_answers(handle):
    async def die_once():
        handle.read.outcome = answer
        raise RayActorError

    group, handle.read.outcome = group_of(handle), die_once
    assert await group.read(SCAN, SEEN) == []
    assert (handle.read.calls, group._back) == (2, None)


async def test_a_full_group_is_not_lost(handle):
    group = group_of(handle)
    handle.read.outcome = handle.ping.outcome = refuse
    with pytest.raises(ApiError, match="shards-0 has too many requests waiting") as caught:
        await group.read(SCAN, SEEN)
    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "1"})
    assert await group.answers()
