"""Two ingresses and a Writer whose calls pass in this process: what was answered is seen by either ingress."""

import asyncio
import contextlib
import time
from types import SimpleNamespace

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


class Call:
    """What a handle's call returns: awaited for its answer, unless the replica is silent."""

    def __init__(self, handle, work):
        self._handle, self._work = handle, work

    def __await__(self):
        return self._answer().__await__()

    async def _answer(self):
        if self._handle.silent:
            self._work.close()
            await asyncio.Event().wait()
        return await self._work

    def cancel(self):
        pass


class Handle:
    """A deployment's handle, whose replica is in this process: `handle.NAME.remote(…)`."""

    def __init__(self, replica):
        self.replica, self.silent = replica, False

    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *given: Call(self, getattr(self.replica, name)(*given)))


class Cluster:
    """A Writer's replica and two ingresses of an index."""

    def __init__(self, work, folder):
        (folder / "write").write_text("poppy")
        self.args = ServeArgs(workdir=str(work), write_token_file=str(folder / "write"), shard_groups=2)
        self.version, _, self.parts = check_index(self.args)
        self.handle = Handle(self.replica())
        self.ingresses = [
            Ingress(self.args, self.version, self.parts, None, self.handle, *self.parts) for _ in range(2)
        ]
        for one in self.ingresses:
            one._writer.alive_seconds = one._writer.late_seconds = one._writer.ping_seconds = LEAVE / 5
        self._running = [asyncio.create_task(one._following.run()) for one in self.ingresses]

    def replica(self):
        return WriterReplica(self.args, self.version, self.parts, *self.parts)

    async def begin(self):
        """Let the Writer begin, and each ingress have an answer of it."""
        await self.handle.replica.check_health()
        while self.handle.replica._begun is None:
            await asyncio.sleep(0.01)
        since = time.monotonic()
        while any(one._following._until < since + LEAVE for one in self.ingresses):
            await asyncio.sleep(0.01)

    async def put(self, name, by=0, key=None):
        return await self.ingresses[by]._writer.put([{"id": name, "text": f"quagga {name}"}], key)

    async def shows(self, by, name):
        """Whether a document is there for a request that begins now, and what the request sees."""
        await self.ingresses[by]._following()
        engine = self.ingresses[by]._served.engine
        seen = engine.view.seen
        documents, lost = await engine.documents(Lookup((name,)))
        assert not lost
        return bool(documents), seen

    async def lose_the_writer(self):
        """The Writer says nothing any more: wait until both ingresses know."""
        self.handle.silent = True
        while not all(one._following.lost for one in self.ingresses):
            await asyncio.sleep(0.01)

    def stop_following(self, by):
        self._running[by].cancel()

    async def close(self):
        for task in [*self._running, self.handle.replica._work]:
            if task is not None:
                task.cancel()
        await asyncio.sleep(0)
        for one in self.ingresses:
            one._served.close()
        self.handle.replica.__del__()


@pytest.fixture
def cluster(work, tmp_path, monkeypatch):
    """`cluster()`: an asynchronous block with a running `Cluster`, whose ingresses lose their leave soon."""

    def near(args, parts, _):
        version, _, _ = check_index(args)
        return [LocalShards(part, version) for part in parts]

    monkeypatch.setattr(app, "shard_handles", near)
    monkeypatch.setattr(following_module, "SECONDS", LEAVE)
    monkeypatch.setattr(handles_module, "READER_SECONDS", LEAVE)
    monkeypatch.setattr(handles_module, "AGAIN_SECONDS", LEAVE / 5)
    monkeypatch.setattr(app, "HELD_SECONDS", LEAVE / 5)
    nothing = dict.fromkeys(("observe", "count", "set"), lambda *_: None)
    monkeypatch.setattr(app, "RayInstruments", lambda: SimpleNamespace(**nothing))

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
        now.stop_following(1)
        began = time.monotonic()
        told = await now.put("a")
        assert time.monotonic() - began > 0.2 * LEAVE
        assert await now.shows(1, "a") == (True, told.seen)
        assert now.ingresses[1]._following.lost == ["writer"]
        began = time.monotonic()
        again = await now.put("b")  # nobody waits for it any more
        assert time.monotonic() - began < LEAVE
        assert await now.shows(1, "b") == (True, again.seen)


async def test_without_a_writer_requests_go_on_and_see_what_was_answered(cluster):
    async with cluster() as now:
        told = await now.put("a")
        await now.lose_the_writer()
        assert [await now.shows(by, "a") for by in (0, 1)] == [(True, told.seen)] * 2
        with pytest.raises(ApiError) as caught:
            await now.put("b", key="k-b")
        assert (caught.value.status, caught.value.code) == (503, "writer_lost")
        now.handle.silent = False
        await now.begin()
        for one in now.ingresses:
            await one._writer._back
        later = await now.put("b", by=1, key="k-b")
        assert [await now.shows(by, "b") for by in (0, 1)] == [(True, later.seen)] * 2


async def test_another_writer_goes_on_and_knows_the_keys(cluster):
    async with cluster() as now:
        told = await now.put("a", key="k-1")
        before, later = now.handle.replica, now.replica()
        writer, _ = before._begun
        await writer.publisher.fold()  # after the next replica looked for the newest version
        before._work.cancel()
        before.__del__()
        now.handle.replica = later
        began = time.monotonic()
        await now.begin()
        again = await now.put("a", by=1, key="k-1")
        assert (again.seen.log, again.documents) == (told.seen.log, 1)
        assert (await now.shows(0, "a"))[1].version == 2
        assert time.monotonic() - began > 0.5 * LEAVE  # readers of the Writer before may answer till then
        assert (await now.put("b")).seen.log == 2
        assert [(await now.shows(by, "b"))[0] for by in (0, 1)] == [True, True]


async def test_a_version_that_nobody_serves_yet_is_seen_without_a_writer(cluster, monkeypatch):
    """A Writer published a rollback and died before it was served: an ingress serves it by itself."""
    async with cluster() as now:
        await now.put("a")
        writer, _ = now.handle.replica._begun

        async def dies(number):
            raise OSError(f"version {number}")

        monkeypatch.setattr(writer.publisher, "_serve", dies)
        with pytest.raises(OSError, match="version 2"):
            await writer.publisher.rollback(1)
        await now.lose_the_writer()
        assert [(await now.shows(by, "a"))[0] for by in (0, 1)] == [False, False]
