"""A group behind a handle: lost at once when it fails, back once it answers, full when it says so."""

import asyncio

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError

from rayhier.serve import ingress
from rayhier.serve.app import check
from rayhier.serve.args import ServeArgs
from rayhier.serve.engine import LostError
from rayhier.serve.errors import ApiError
from rayhier.serve.ingress import HandleGroup, Ingress, ShardRange

QUERY, LEAVES = np.zeros((1, 2), np.float32), np.zeros((1, 1), np.int64)


class Method:
    """`handle.NAME`: what `remote` returns is awaited for its outcome."""

    def __init__(self, outcome):
        self.outcome, self.calls = outcome, 0

    async def remote(self, *_, **__):
        self.calls += 1
        return await self.outcome()


class Handle:
    """A deployment that does as told."""

    def __init__(self, *_):
        self.scan, self.ping = Method(self.answer), Method(self.answer)

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
    monkeypatch.setattr(ingress, "AGAIN_SECONDS", 0.0)
    return Handle()


@pytest.mark.parametrize("failing", ["die", "hang"])
def test_lost_until_a_ping_comes_back(handle, failing):
    async def main():
        group = HandleGroup("shards-0", range(3), handle, seconds=0.01)
        assert await group.scan(QUERY, LEAVES, 1) == []
        handle.scan.outcome, handle.ping.outcome = getattr(handle, failing), handle.die
        for _ in range(3):
            with pytest.raises(LostError, match="shards-0"):
                await group.scan(QUERY, LEAVES, 1)
        assert handle.scan.calls == (3 if failing == "die" else 2)  # once lost it is not asked
        assert not await group.answers()
        handle.scan.outcome = handle.ping.outcome = handle.answer
        await group._back
        assert await group.scan(QUERY, LEAVES, 1) == []
        assert await group.answers()

    asyncio.run(main())


def test_what_a_dying_replica_was_asked_another_answers(handle):
    async def main():
        group = HandleGroup("shards-0", range(3), handle, seconds=1.0)

        async def die_once():
            handle.scan.outcome = handle.answer
            raise RayActorError

        handle.scan.outcome = die_once
        assert await group.scan(QUERY, LEAVES, 1) == []
        assert handle.scan.calls == 2
        assert group._back is None

    asyncio.run(main())


def test_a_full_group_is_not_lost(handle):
    async def main():
        group = HandleGroup("shards-0", range(3), handle, seconds=1.0)
        handle.scan.outcome = handle.refuse
        with pytest.raises(ApiError, match="shards-0 has too many requests waiting") as caught:
            await group.scan(QUERY, LEAVES, 1)
        assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "1"})
        handle.ping.outcome = handle.refuse
        assert await group.answers()
        handle.scan.outcome = handle.answer
        assert await group.scan(QUERY, LEAVES, 1) == []

    asyncio.run(main())


@pytest.mark.parametrize("told", [None, "bfloat16"])
def test_what_is_served_says_what_queries_are_encoded_in(damageable, told):
    path = damageable / "current.json"
    path.write_text(path.read_text().replace('"precision": "float32"', '"precision": "bfloat16"'))
    own = {} if told is None else {"encoder_precision": told}
    args = ServeArgs(workdir=str(damageable), encoder_threads=torch.get_num_threads(), **own)
    version, _, leaves = check(args)
    parts = [ShardRange(f"shards-{n}", one) for n, one in enumerate(leaves)]
    client = TestClient(Ingress(args, version, parts, None, *map(Handle, parts)).__serve_build_asgi_app__())
    index = client.get("/v1/index").json()
    assert (index["precision"], index["similarity"]) == (told or "float32", "cosine")
    assert index["limits"] == args.limits.model_dump()
