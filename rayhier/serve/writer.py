"""The deployment that writes: one replica has the index's lease, makes changes durable, and tells ingresses of them."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from ray.serve.handle import DeploymentHandle

from rayhier.search.snapshot import Seen
from rayhier.serve.application import Application
from rayhier.serve.args import ServeArgs
from rayhier.serve.backend.changes import Written
from rayhier.serve.backend.follower import Newest
from rayhier.serve.backend.following import HELD_SECONDS, Readers
from rayhier.serve.backend.groups import ShardRange
from rayhier.serve.backend.publishing import RolledBack
from rayhier.serve.backend.version import Version
from rayhier.serve.backend.writer import Writer
from rayhier.serve.errors import ApiError, LostError, invalid
from rayhier.serve.ingress import RayInstruments, shard_handles
from rayhier.spec import InputError
from rayhier.storage.writer_lease import clock

AGAIN_SECONDS = 0.5
"""Seconds between two tries to take the lease, which an earlier Writer may have."""
T = TypeVar("T", Written, RolledBack)
log = logging.getLogger("ray.serve")


class WriterReplica:
    """Writes to an index for ingresses, each of which sees a change before it is answered."""

    def __init__(self, args: ServeArgs, version: Version, parts: list[ShardRange], *handles: DeploymentHandle) -> None:
        shards, newest = shard_handles(args, parts, handles), Version.newest(version.workdir)[0]
        self._served = Application(args, newest, parts, shards, None, RayInstruments())
        self._begun: tuple[Writer, Readers] | None = None
        self._work: asyncio.Task[None] | None = None

    def __del__(self) -> None:
        """Give the lease and the version back; called by Ray Serve when it stops the replica."""
        begun = getattr(self, "_begun", None)
        if begun is not None:
            begun[0].close()
        if hasattr(self, "_served"):  # missing where opening failed
            self._served.close()

    async def put(self, documents: Sequence[Mapping[str, Any]], key: str, body: str) -> Written | ApiError:
        return await self._answered(lambda writer: writer.put(documents, key, body))

    async def delete(self, ids: Sequence[str], key: str, body: str) -> Written | ApiError:
        return await self._answered(lambda writer: writer.delete(ids, key, body))

    async def rollback(self, number: int, key: str) -> RolledBack | ApiError:
        return await self._answered(lambda writer: writer.publisher.rollback(number, key))

    async def newest(self, reader: str, seen: Seen) -> Newest:
        """Return what requests see to a reader, which says what its own see; waits a while for something new."""
        _, readers = self._writing()
        readers.called(reader, seen)
        until = clock() + HELD_SECONDS
        while self._served.follower.seen == seen and clock() < until:
            await readers.wait(until)
        return self._served.follower.newest

    async def ping(self) -> None:
        self._writing()

    async def alive(self) -> None:
        """Return at once, which shows that the replica's process lives."""

    async def check_health(self) -> None:
        """Begin to write, or go on; Ray Serve calls this regularly."""
        self._start()

    def _start(self) -> None:
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._write(), context=contextvars.Context())

    async def _write(self) -> None:
        """Take the lease once no other Writer has it, then fold in the background."""
        while self._begun is None:
            try:
                self._begun = await self._begin()
            except (InputError, LostError, OSError) as error:
                log.warning("cannot write yet: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)
        await self._begun[0].publisher.fold_forever()

    async def _begin(self) -> tuple[Writer, Readers]:
        writer, readers = await asyncio.to_thread(self._served.writer), Readers()
        try:
            await writer.begin()
        except BaseException:
            writer.close()
            raise
        self._served.follower.changed = readers.changed
        return writer, readers

    def _writing(self) -> tuple[Writer, Readers]:
        """Return the Writer and its readers. RuntimeError where it has not begun."""
        self._start()
        if self._begun is None:
            raise RuntimeError("the Writer is starting")
        return self._begun

    async def _answered(self, change: Callable[[Writer], Awaitable[T]]) -> T | ApiError:
        """Make a change. Returns once all ingresses see it, or the error that refuses it."""
        writer, readers = self._writing()
        try:
            outcome = await change(writer)
        except ApiError as error:
            return error
        except InputError as error:
            return invalid(str(error))
        await readers.see(outcome.seen)
        return outcome
