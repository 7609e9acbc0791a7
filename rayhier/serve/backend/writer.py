"""The Writer of an index: takes the lease, goes on where the one before ended, and takes changes of requests."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from rayhier.serve.args import WriteLimits
from rayhier.serve.backend.changes import TOGETHER, ChangeQueue, Keys, WaitingChange, Written, written_of
from rayhier.serve.backend.follower import Follower
from rayhier.serve.backend.lease import MovedError, WriteLease
from rayhier.serve.backend.placement import Placement
from rayhier.serve.backend.publishing import Publisher, RolledBack
from rayhier.serve.errors import ApiError
from rayhier.serve.metrics import Metrics
from rayhier.spec import InputError
from rayhier.storage import current
from rayhier.storage.change_log import ChangeLog
from rayhier.storage.paths import Location, locate
from rayhier.storage.writer_lease import fence

T = TypeVar("T")
CARRY = "allowed: `rayhier run SPEC` again, which carries the documents as that index has them"
log = logging.getLogger("ray.serve")


class Writer:
    """Writes to an index; an engine's requests see its changes and versions by a follower."""

    def __init__(
        self,
        follower: Follower,
        limits: WriteLimits,
        metrics: Metrics | None = None,
    ) -> None:
        """Write to the index that a follower follows. InputError where another writes, or it cannot have a tail."""
        if follower.spec.search.how == "level":
            raise InputError(
                "write_token_file: search.how is level, which compares documents by a tree's levels, that changes do "
                "not have; allowed: no write_token_file, or search.how leaves"
            )
        self._follower = follower
        self._placement, self._lease = Placement(follower, metrics), WriteLease(follower.root, self._is_named)
        self._changes = ChangeQueue(follower, limits, self._lease, self._placement)
        self.publisher = Publisher(follower, limits, self._lease, self._placement, self._changes)
        """Folds what was written, in the background, and publishes older versions again."""

    @property
    def root(self) -> Location:
        """Folder of the index."""
        return self._follower.root

    def _is_named(self) -> bool:
        version = self._follower.version
        return current.read(locate(version.workdir)).artifacts["index"] == version.now.artifacts["index"]

    def close(self) -> None:
        self._lease.close()

    @property
    def is_lost(self) -> bool:
        """True where another server may write to the index."""
        return self._lease.lost

    async def put(self, documents: Sequence[Mapping[str, Any]], key: str | None = None, body: str = "") -> Written:
        """Write documents, which replace those with the same ids. Returns once the change is durable and seen.

        InputError where a document is not allowed. ApiError 422 where a key was used with another body, 503 where
        storage refuses the change or too many changes wait to be folded. Nothing is changed then.
        """
        if (again := self._changes.again(key, body)) is not None:
            return again
        self._changes.check_room()
        table, ids, assigner = await self._placement.place(documents)
        return await self._changes.make(WaitingChange("put", table, ids, key, body, assigner))

    async def delete(self, ids: Sequence[str], key: str | None = None, body: str = "") -> Written:
        """Delete documents. ApiError 404 where an id is not there, and as `put`. Nothing is changed then."""
        if (again := self._changes.again(key, body)) is not None:
            return again
        names = list(dict.fromkeys(ids))
        self._changes.check_room()
        table = pa.table({"doc_id": pa.array(names, pa.string())})
        return await self._changes.make(WaitingChange("delete", table, names, key, body))

    async def begin(self, old: "Writer | None" = None) -> None:
        """Let requests see the newest version with the log's tail, and what the index before this one was told since.

        If no Writer `old` of that index hands over, that index's Writers must be unable to answer a change any more.
        LostError where a shard group does not answer, InputError as in `take_over`.
        """
        before = self._follower.version.before()
        if before is not None and (old is None or old.root != before):
            await asyncio.to_thread(fence, before)
        for there in [*([] if before is None else [ChangeLog(before)]), self._follower.log]:
            await self._changes.remember_folded(there)
        await self._changes.begin()
        await self._placement.open_encoder()
        if self._follower.damage is not None:
            log.error("%s", self._follower.damage)
        await self.publisher.serve_newest()  # an earlier Writer may have published it before it gave the lease back
        await self.publisher.tidy_log()
        if before is not None:
            self.publisher.take_over = partial(self.take_over, before)
        if before is None or self._follower.damage is None:  # else once the log is mended
            await self.publisher.take_over()
            self._lease.has_caught_up = True

    async def take_over(self, before: Location) -> None:
        """Append what another index's log has beyond this one's, encoded anew, under the same numbers and keys.

        InputError where a change cannot be read, does not fit this index, or a rollback of the other index left changes
        behind that this one may have; those before it are appended.
        """
        router = self._follower.manifest.router
        try:
            later = await self._changes.beyond(before)
        except InputError as error:
            raise InputError(f"{error}; {CARRY}") from None
        if later and self._follower.damage is not None:
            raise InputError(self._follower.damage)
        for begin in range(0, len(later), TOGETHER):
            changes = later[begin : begin + TOGETHER]
            tables = iter(await self._placement.encode_again(changes))
            ids = {made.number: made.ids.to_pylist() for made in changes}
            names = [name for names in ids.values() for name in names]
            there = await self._changes.present(names, self._follower.seen)
            for made in changes:
                again = replace(made, epoch=self._lease.epoch)
                anew = again if made.rows is None else replace(again, table=next(tables), router=router)
                appended, refused = await self._changes.append([anew])
                if refused is not None:
                    raise refused
                if not appended:
                    raise InputError(f"{self.root}: another process appends to its log; allowed: one writer at a time")
                names = ids[made.number]
                self._follower.apply(anew, Counter({name: there[name] for name in names}))
                written = written_of(anew)
                there.update({name: written[name] - there[name] for name in names})

    @contextlib.asynccontextmanager
    async def handing_over(self, to: "Writer") -> AsyncIterator["Writer"]:
        """Let changes wait during the block, at whose start another Writer has all that were made.

        Unless the block fails, they are then refused with MovedError, and this Writer, which the block gets, changes
        nothing any more.
        """
        await to.take_over(self.root)
        async with self._follower.lock:
            if not self._lease.holds():  # another Writer may have taken over: it must not answer a change any more
                await asyncio.to_thread(fence, self.root)
            await to.take_over(self.root)
            to.know(self._changes.keys)
            yield self
            self._lease.moved = True

    def know(self, keys: Keys) -> None:
        """Remember idempotency keys, with their bodies' hashes and outcomes, of changes that another Writer made."""
        for key, body, written in keys:
            self._changes.keys.remember(key, body, written)


class Writers:
    """The Writer of the index that is served; a change that waits while another index takes its place goes to that."""

    def __init__(self, now: Writer) -> None:
        self.now = now

    async def put(self, documents: Sequence[Mapping[str, Any]], key: str | None = None, body: str = "") -> Written:
        """Write documents, as `Writer.put` does; vectors count for the index that was served when they came."""
        first, texts = self.now, [{name: part for name, part in each.items() if name != "vector"} for each in documents]
        return await self._by(lambda writer: writer.put(documents if writer is first else texts, key, body))

    async def delete(self, ids: Sequence[str], key: str | None = None, body: str = "") -> Written:
        return await self._by(lambda writer: writer.delete(ids, key, body))

    async def rollback(self, number: int, key: str | None = None) -> RolledBack:
        """Publish an older version again, as `Publisher.rollback` does. ApiError 409 if another index is served now."""
        try:
            return await self.now.publisher.rollback(number, key)
        except MovedError:
            message = f"version {number}: is of an index whose place another took; nothing was published"
            raise ApiError(409, "not_restored", f"{message}; allowed: a version that GET /v1/versions lists") from None

    async def _by(self, change: Callable[[Writer], Awaitable[T]]) -> T:
        while True:
            try:
                return await change(self.now)
            except MovedError:
                continue

    async def fold_forever(self) -> None:
        """Fold the tail of the index that is served, until cancelled."""
        while True:
            await self.now.publisher.fold_forever()
