"""Deployments behind handles: lost when they fail, back once they answer, full when they say so."""

import asyncio

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError

from rayhier.serve import remote as module
from rayhier.serve.app import check
from rayhier.serve.args import ServeArgs
from rayhier.serve.errors import ApiError, LostError
from rayhier.serve.ingress import HandleGroup, HandleScores, Ingress, ShardRange
from rayhier.serve.remote import Remote

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
        self.scan, self.score, self.ping = (Method(self.answer) for _ in range(3))

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
    return HandleGroup(Remote("shards-0", handle, ping_seconds=0.05), range(3), seconds)


@pytest.mark.parametrize("failing", ["die", "hang"])
def test_lost_until_a_ping_comes_back(handle, failing):
    async def main():
        group = group_of(handle, seconds=0.01)
        assert await group.scan(QUERY, LEAVES, 1) == []
        handle.scan.outcome, handle.ping.outcome = getattr(handle, failing), handle.die
        for _ in range(4):
            with pytest.raises(LostError, match="shards-0"):
                await group.scan(QUERY, LEAVES, 1)
        assert handle.scan.calls == (3 if failing == "die" else 2)  # once lost it is not asked
        assert not await group.answers()
        handle.scan.outcome = handle.ping.outcome = handle.answer
        await group.remote._back
        assert await group.scan(QUERY, LEAVES, 1) == []
        assert await group.answers()

    asyncio.run(main())


def test_late_with_one_answer_is_not_lost_for_others(handle):
    async def main():
        group = group_of(handle, seconds=0.01)
        handle.scan.outcome = handle.hang
        with pytest.raises(LostError, match="shards-0"):
            await group.scan(QUERY, LEAVES, 1)
        handle.scan.outcome = handle.answer
        assert await group.scan(QUERY, LEAVES, 1) == []
        await group.remote._back
        assert (group.remote.lost, handle.ping.calls) == (False, 1)

    asyncio.run(main())


def test_the_cross_encoder_is_asked_for_as_long_as_a_request_has(handle):
    async def main():
        scores = HandleScores(Remote("reranker", handle, ping_seconds=0.05))
        assert await scores.score(["a"], ["b"], 1.0) == []
        handle.score.outcome = handle.ping.outcome = handle.hang
        with pytest.raises(LostError, match="reranker"):
            await scores.score(["a"], ["b"], 0.01)
        assert not await scores.answers()
        await asyncio.sleep(0.1)
        asked = handle.score.calls
        with pytest.raises(LostError, match="reranker"):
            await scores.score(["a"], ["b"], 1.0)
        assert handle.score.calls == asked
        handle.score.outcome = handle.ping.outcome = handle.answer
        await scores.remote._back
        assert await scores.score(["a"], ["b"], 1.0) == []

    asyncio.run(main())


def test_what_a_dying_replica_was_asked_another_answers(handle):
    async def main():
        group = group_of(handle)

        async def die_once():
            handle.scan.outcome = handle.answer
            raise RayActorError

        handle.scan.outcome = die_once
        assert await group.scan(QUERY, LEAVES, 1) == []
        assert handle.scan.calls == 2
        assert group.remote._back is None

    asyncio.run(main())


def test_a_full_group_is_not_lost(handle):
    async def main():
        group = group_of(handle)
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
