"""Two ingresses and a Writer whose calls pass in this process: what was answered is seen by either ingress.

integration/test_served_writes.py kills the Writer's process.
"""

import asyncio
import contextlib
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from rayhier.search.segment.stored import Lookup
from rayhier.serve import app
from rayhier.serve.app import Ingress, WriterReplica
from rayhier.serve.application import check_index
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend import follower as following_module
from rayhier.serve.backend import handles as handles_module
from rayhier.serve.backend.shards import LocalShards
from rayhier.serve.errors import ApiError

LEAVE = 0.6
"""Seconds for which an ingress may answer without the Writer, in these tests."""


class Handle:
    """A deployment's handle, whose replica is in this process: `handle.NAME.remote(…)`, unless it is silent."""

    def __init__(self, replica):
        self.replica, self.silent = replica, False

    def __getattr__(self, name):
        async def answer(*given):
            if self.silent:
                await asyncio.Event().wait()
            return await getattr(self.replica, name)(*given)

        return SimpleNamespace(remote=lambda *given: Call(answer(*given)))


class Call:
    """What a handle's call returns."""

    def __init__(self, work):
        self._work = work

    def __await__(self):
        return self._work.__await__()

    def cancel(self):
        self._work.close()


class Cluster:
    """A Writer's replica and two ingresses of an index."""

    def __init__(self, work, folder):
        (folder / "write").write_text("poppy")
        args = ServeArgs(workdir=str(work), write_token_file=str(folder / "write"), shard_groups=2)
        version, _, parts = check_index(args)
        self.replica = WriterReplica(args, version, parts, *parts)
        self.handle = Handle(self.replica)
        self.ingresses = [Ingress(args, version, parts, None, self.handle, *parts) for _ in range(2)]
        for one in self.ingresses:
            one._writer.alive_seconds = one._writer.late_seconds = one._writer.ping_seconds = LEAVE / 5
        self.running = [asyncio.create_task(one._following.run()) for one in self.ingresses]

    async def begin(self):
        """Let the Writer begin, and each ingress have an answer of it."""
        await self.replica.check_health()
        since = time.monotonic()
        while self.replica._begun is None or any(one._following._until < since + LEAVE for one in self.ingresses):
            await asyncio.sleep(0.01)

    async def put(self, name, by=0, key=None):
        return await self.ingresses[by]._writer.put([{"id": name, "text": f"quagga {name}"}], key)

    async def shows(self, name, by=1):
        """What a request that begins now sees; None if a document is not there."""
        await self.ingresses[by]._following()
        engine = self.ingresses[by]._served.engine
        seen = engine.view.seen
        documents, lost = await engine.documents(Lookup((name,)))
        assert not lost
        return seen if documents else None

    async def lose_the_writer(self):
        """The Writer says nothing any more: wait until both ingresses know."""
        self.handle.silent = True
        while not all(one._following.lost for one in self.ingresses):
            await asyncio.sleep(0.01)

    async def close(self):
        for task in [*self.running, self.replica._work]:
            task.cancel()
        await asyncio.sleep(0)
        for one in self.ingresses:
            one._served.close()
        self.replica.__del__()


@pytest.fixture
def cluster(work, tmp_path, monkeypatch):
    """`cluster()`: an asynchronous block with a running `Cluster`, whose ingresses lose their leave soon."""

    def near(args, parts, _):
        return [LocalShards(part, check_index(args)[0]) for part in parts]

    monkeypatch.setattr(app, "shard_handles", near)
    for module, name, seconds in (
        (following_module, "SECONDS", LEAVE),
        (handles_module, "READER_SECONDS", LEAVE),
        (handles_module, "AGAIN_SECONDS", LEAVE / 5),
        (app, "HELD_SECONDS", LEAVE / 5),
    ):
        monkeypatch.setattr(module, name, seconds)
    monkeypatch.setattr(app, "RayInstruments", Mock)

    @contextlib.asynccontextmanager
    async def running():
        made = Cluster(work, tmp_path)
        await made.begin()
        yield made
        await made.close()

    return running


async def test_an_ingress_that_does_not_follow_reads_storage(cluster):
    """The change is answered once the ingress may not answer by what it knows any more."""
    async with cluster() as now:
        now.running[1].cancel()
        began = time.monotonic()
        told = await now.put("a")
        assert time.monotonic() - began > 0.2 * LEAVE
        assert await now.shows("a") == told.seen
        assert now.ingresses[1]._following.lost == ["writer"]
        began = time.monotonic()
        again = await now.put("b")  # nobody waits for it any more
        assert time.monotonic() - began < LEAVE
        assert await now.shows("b") == again.seen


async def test_without_a_writer_requests_go_on_and_see_what_was_answered(cluster):
    async with cluster() as now:
        told = await now.put("a")
        await now.lose_the_writer()
        assert [await now.shows("a", by) for by in (0, 1)] == [told.seen] * 2
        with pytest.raises(ApiError) as caught:
            await now.put("b", key="k-b")
        assert (caught.value.status, caught.value.code) == (503, "writer_lost")
        now.handle.silent = False
        await now.begin()
        for one in now.ingresses:
            await one._writer._back
        later = await now.put("b", by=1, key="k-b")
        assert [await now.shows("b", by) for by in (0, 1)] == [later.seen] * 2


async def test_a_version_that_nobody_serves_yet_is_seen_without_a_writer(cluster, monkeypatch):
    """A Writer published a rollback and died before it was served: an ingress serves it by itself."""
    async with cluster() as now:
        await now.put("a")
        writer, _ = now.replica._begun
        monkeypatch.setattr(writer.publisher, "_serve", Mock(side_effect=OSError("version 2")))
        with pytest.raises(OSError, match="version 2"):
            await writer.publisher.rollback(1)
        await now.lose_the_writer()
        assert [await now.shows("a", by) for by in (0, 1)] == [None, None]
