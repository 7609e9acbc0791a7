"""The Writer of an index, which appends a change to the log, lets searches see the change, and answers the request.

The Writer takes the lease first, and continues after the last change of the earlier Writer.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from rayhier.search.snapshot import Seen
from rayhier.serve.args import WriteLimits
from rayhier.serve.backend.changes import (
    Keys,
    MovedError,
    NextChange,
    Rows,
    WaitingChange,
    WriteLease,
    Written,
    written_of,
)
from rayhier.serve.backend.follower import Follower, Newest
from rayhier.serve.backend.placement import Placement
from rayhier.serve.backend.publishing import Publisher
from rayhier.serve.errors import RETRY, ApiError, LostError, overloaded, unanswered
from rayhier.serve.metrics import Metrics
from rayhier.serve.threads import begin, run_in
from rayhier.spec import InputError
from rayhier.storage import current
from rayhier.storage.change_log import KEPT, Change, ChangeLog, FencedError
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.paths import Location, locate
from rayhier.storage.writer_lease import fence

T = TypeVar("T")
TOGETHER = 64
"""Largest number of documents, of several changes, that are looked up together."""
APPENDED_SECONDS = 0.02
"""Seconds after which the Writer stops appending changes, to answer the requests of appended changes first."""
CARRY = "allowed: `rayhier run SPEC` again, which carries the documents as that index has them"
ENDS = "the server ends. The change may have been made: send it again"
log = logging.getLogger("ray.serve")


class Writer:
    """Makes changes to an index in the order of their arrival. A follower lets requests see the changes."""

    def __init__(self, follower: Follower, limits: WriteLimits, metrics: Metrics | None = None) -> None:
        """Write to a follower's index. InputError if another server writes, or if `search.how: level` reads no tail."""
        if follower.spec.search.how == "level":
            raise InputError(
                "write_token_file: got a file with search.how level, which does not support changes; allowed: no "
                "write_token_file, or search.how leaves"
            )
        self._follower, self.limits = follower, limits
        self.placement, self.lease = Placement(follower, metrics), WriteLease(follower.root, self._is_named)
        self.keys = Keys()
        self._before: Location | None = None
        follower.applied = self._note
        self._waiting, self._is_changing = deque[WaitingChange](), False
        self._append_thread = ThreadPoolExecutor(1, "append")
        self.publisher = Publisher(self, follower)

    @property
    def root(self) -> Location:
        return self._follower.root

    def _is_named(self) -> bool:
        version = self._follower.version
        return current.read(locate(version.workdir)).artifacts["index"] == version.now.artifacts["index"]

    def close(self) -> None:
        self.lease.close()

    async def put(self, documents: Rows, key: str | None = None, body: str = "", *, upsert: bool = True) -> Written:
        """Write documents, which replace documents with the same ids. Returns once searches see the durable change.

        InputError if a document is not allowed. ApiError 409 if an id exists and `upsert` is false. 422 if the key was
        used with another body. 503 if storage refuses, or too many changes wait. An error changes nothing.
        """
        if (again := self._again(key, body)) is not None:
            return again
        self.check_room()
        table, ids, assigner = await self.placement.place(documents)
        return await self._make(WaitingChange("put", table, ids, key, body, assigner, upsert=upsert))

    async def delete(self, ids: Sequence[str], key: str | None = None, body: str = "") -> Written:
        """Delete documents. ApiError 404 if an id is not in the index, 422 and 503 as in `put`."""
        if (again := self._again(key, body)) is not None:
            return again
        names = list(dict.fromkeys(ids))
        self.check_room()
        table = pa.table({"doc_id": pa.array(names, pa.string())})
        return await self._make(WaitingChange("delete", table, names, key, body))

    async def begin(self, old: "Writer | None" = None) -> None:
        """Let requests see the newest version, the log's tail, and newer changes of the index that this one replaces.

        Writers of the replaced index are stopped first, except for the Writer `old`, which hands over later. LostError
        if a shard group does not answer, InputError if a change does not fit.
        """
        self._before = before = self._follower.version.before()
        if before is not None and (old is None or old.root != before):
            await asyncio.to_thread(fence, before)
        for there in [*([] if before is None else [ChangeLog(before)]), self._follower.log]:
            await self._remember_folded(there)
        await run_in(self._append_thread, self._follower.begin)
        await self.placement.open_encoder()
        if self._follower.damage is not None:
            log.error("%s", self._follower.damage)
        await self.publisher.serve_newest()  # an earlier Writer may have published it before it returned the lease
        await self.publisher.tidy_log()
        if before is None or self._follower.damage is None:  # otherwise when the log is repaired
            await self._take_over_before()

    async def go_on(self) -> None:
        """Let requests see another Writer's changes, after the lease was taken again. Call within `_follower.lock`."""
        await self.catch_up()
        if self._follower.damage is None:
            await self._remember_folded(self._follower.log)
            await self._take_over_before()

    async def _take_over_before(self) -> None:
        if self._before is not None:
            await self.take_over(self._before)
        self.lease.has_caught_up = True

    async def take_over(self, before: Location) -> None:
        """Append the newer changes of another index's log, encoded again, with the same numbers and keys.

        InputError if a change cannot be read or does not fit this index. Earlier changes may be appended already.
        InputError also if a rollback of the other index dropped changes that this index may have.
        """
        router = self._follower.manifest.router
        try:
            later = await run_in(self._append_thread, self._beyond, before)
        except InputError as error:
            raise InputError(f"{error}; {CARRY}") from None
        if later and self._follower.damage is not None:
            raise InputError(self._follower.damage)
        for first in range(0, len(later), TOGETHER):
            changes = later[first : first + TOGETHER]
            tables = iter(await self.placement.encode_again(changes))
            ids = {made.number: made.ids.to_pylist() for made in changes}
            names = [name for names in ids.values() for name in names]
            there = await self._present(names, self._follower.seen)
            for made in changes:
                again = replace(made, epoch=self.lease.epoch)
                anew = again if made.rows is None else replace(again, table=next(tables), router=router)
                appended, refused = await run_in(self._append_thread, self._append, [anew])
                if refused is not None:
                    raise refused
                if not appended:
                    raise InputError(f"{self.root}: another process appends to its log; allowed: one writer at a time")
                names = ids[made.number]
                self._follower.apply(anew, Counter({name: there[name] for name in names}))
                written = written_of(anew)
                there.update({name: written[name] - there[name] for name in names})

    def _beyond(self, other: Location) -> list[Change]:
        """Read the other index's changes after this log's newest. InputError if a rollback there dropped changes."""
        mine, there = self._follower.manifest, LeafMap.open(other).manifest
        if there.undone_in > mine.taken or there.undone > mine.log:
            raise InputError(
                f"{other}: a rollback made version {there.undone_in} and dropped changes up to {there.undone}. "
                f"{self._follower.root} has the content of version {mine.taken}, and changes up to {mine.log}"
            )
        return list(ChangeLog(other).after(self._follower.seen.log))

    @contextlib.asynccontextmanager
    async def handing_over(self, to: "Writer") -> AsyncIterator["Writer"]:
        """Give all changes of this Writer to the Writer `to`. Changes that arrive during the block wait.

        The block gets this Writer. After the block, this Writer refuses changes with MovedError.
        If the block fails, this Writer goes on.
        """
        await to.take_over(self.root)
        async with self._follower.lock:
            if not self.lease.holds():  # another Writer may have taken over, and must not answer changes any more
                await asyncio.to_thread(fence, self.root)
            await to.take_over(self.root)
            to.know(self.keys)
            yield self
            self.lease.moved = True

    def know(self, keys: Keys) -> None:
        """Remember idempotency keys of changes that another Writer made, with their bodies' hashes and outcomes."""
        for key, body, written in keys:
            self.keys.remember(key, body, written)

    async def _make(self, waiting: WaitingChange) -> Written:
        """Make a change after waiting changes, even if its request ends early. Returns once searches see the change.

        Raises the errors of `put` and `delete`, or MovedError if another index has replaced this index.
        """
        self._waiting.append(waiting)
        if not self._is_changing:
            self._is_changing = True
            begin(self._change_waiting())
        return await waiting.outcome

    def _again(self, key: str | None, body: str) -> Written | None:
        written = self.keys.outcome(key, body)
        if written is not None:
            self.lease.check()
        return written

    def check_room(self, documents: int = 0, size: int = 0) -> None:
        """Raise ApiError 503 unless the log has room after other changes of `documents` documents and `size` bytes."""
        if (damage := self._follower.damage) is not None:
            raise ApiError(503, "log_damaged", f"{damage}. Nothing can be written until it is repaired")
        self.lease.check()
        tail = self._follower.tail
        documents, size = documents + tail.documents, size + tail.bytes
        if documents >= self.limits.max_tail_documents or size >= self.limits.max_tail_bytes:
            message = f"{documents} documents of {size} bytes wait to be folded into leaf files. Retry in a second"
            raise overloaded(message)

    @property
    def is_due(self) -> bool:
        """True if the tail is large or old enough to be folded."""
        limits, tail = self.limits, self._follower.tail
        is_old = tail.documents > 0 and time.monotonic() - tail.oldest >= limits.fold_seconds
        return is_old or tail.documents >= limits.fold_documents or tail.bytes >= limits.fold_bytes

    async def _change_waiting(self) -> None:
        try:
            while self._waiting:
                async with self._follower.lock:
                    await self._change(self._taken())
        finally:
            self._is_changing = False

    def _taken(self) -> list[WaitingChange]:
        taken, documents = list[WaitingChange](), 0
        while self._waiting and (not taken or documents + len(self._waiting[0].ids) <= TOGETHER):
            waiting = self._waiting.popleft()
            if not waiting.outcome.done():
                taken.append(waiting)
                documents += len(waiting.ids)
        return taken

    async def _change(self, taken: Sequence[WaitingChange]) -> None:
        """Make changes one after another, each as an object of the log. A refused change changes nothing."""
        while left := [each for each in taken if not each.outcome.done()]:
            try:
                await self._change_some(left)
            except Exception as error:  # noqa: BLE001  every request gets the error
                for each in left:
                    self._end_again(each)
                    each.ends(error)
            except asyncio.CancelledError:
                for each in left:
                    each.ends(overloaded(ENDS))
                raise

    async def _change_some(self, left: Sequence[WaitingChange]) -> None:
        """Write the first changes of a list to the log, and leave the others for later.

        A change is left if it has the key of an earlier change in the list, or follows a refused change. If another
        process took the next number of the log, all are left. An error applies to all changes without an outcome.
        """
        self.lease.check_moved()
        there = await self._present(list({name for each in left for name in each.ids}), self._follower.seen)
        nexts, keys, documents, size = list[NextChange](), set[str](), 0, 0
        for each in left:
            if each.key in keys or self._end_again(each):
                continue
            try:
                self.check_room(documents, size)  # other changes may have filled the tail
                made = await self._made_of(each, there, self._follower.seen.log + len(nexts) + 1)
            except (ApiError, InputError) as error:
                if nexts:  # the reason may be an earlier change in `nexts`, which is not durable yet
                    break
                each.ends(error)
                continue
            nexts.append(NextChange(each, made, Counter({name: there[name] for name in each.ids})))
            written, documents, size = written_of(made), documents + made.documents, size + made.table.nbytes
            there.update({name: written[name] - there[name] for name in each.ids})
            keys |= set() if each.key is None else {each.key}
        while nexts:
            appended, refused = await run_in(self._append_thread, self._append, [each.change for each in nexts])
            if not appended and refused is None:
                await self.catch_up()
                return
            for entry in nexts[:appended]:
                self._follower.apply(entry.change, entry.before)
            if not self._end_appended(nexts[:appended]):
                return
            if refused is not None:  # not repeated: the log may have the change, so it could be made twice
                raise refused
            nexts = nexts[appended:]

    def _end_appended(self, appended: Sequence[NextChange]) -> bool:
        """Answer requests whose changes are in the log. Returns False if another Writer may have the lease."""
        try:
            self.lease.check()
        except ApiError as error:
            for each in appended:
                each.waiting.ends(error)
            return False
        for each in appended:
            seen = replace(self._follower.seen, log=each.change.number)
            each.waiting.ends(Written(seen, each.change.documents, each.change.replaced))
        return True

    def _end_again(self, waiting: WaitingChange) -> bool:
        """Answer a request that repeats an earlier request's key. Returns False if the key is new."""
        try:
            again = self._again(waiting.key, waiting.body)
        except ApiError as error:
            waiting.ends(error)
            return True
        if again is not None:
            waiting.ends(again)
        return again is not None

    async def _made_of(self, waiting: WaitingChange, there: Counter[str], number: int) -> Change:
        """Make change `number`. `there` counts documents by id. ApiError for a missing or an existing id."""
        ids, table, router, replaced = waiting.ids, waiting.table, self._follower.manifest.router, 0
        if waiting.kind == "delete" and (missing := [name for name in ids if not there[name]]):
            message = f"ids: {len(missing)} not in the index: {missing[0]!r:.80}. Nothing was changed"
            raise ApiError(404, "no_document", f"{message}; allowed: ids of documents in the index")
        if waiting.kind == "put":
            table = await self.placement.place_again(table, waiting.assigner)
            present = [name for name in ids if there[name]]
            if present and not waiting.upsert:
                message = f"ids: {len(present)} in the index already: {present[0]!r:.80}. Nothing was changed"
                raise ApiError(409, "exists", f"{message}; allowed: new ids, or upsert")
            replaced = len(present)
        epoch = self.lease.epoch
        return Change(number, waiting.kind, table, waiting.key, waiting.body, len(ids), replaced, router, epoch)

    def _append(self, changes: Sequence[Change]) -> tuple[int, ApiError | None]:
        """Make changes durable, in order. Returns their number, and an ApiError 503 if storage refused the next change.

        A refused change may be in the log or not. A lower number without an error means that time
        or the lease is over, or that another process took the next number.
        """
        began = time.monotonic()
        for place, made in enumerate(changes):
            if place and (time.monotonic() - began > APPENDED_SECONDS or not self.lease.holds()):
                return place, None
            try:
                if not self._follower.log.append(made):
                    return place, None
            except FencedError:
                self.lease.lose()
                return place, None
            except OSError as error:
                log.warning("the log cannot be written: %s", error)
                reason = f"storage refuses changes: {error.strerror or error}"
                return place, ApiError(503, "storage", f"{reason}. The change may have been made: send it again", RETRY)
        return len(changes), None

    async def _present(self, ids: Sequence[str], seen: Seen) -> Counter[str]:
        """Count the rows of documents with the given ids. ApiError 503 if a shard group does not answer."""
        try:
            return await self._follower.view.present(ids, seen)
        except LostError as lost:
            raise unanswered(f"{lost} did not answer. Nothing was changed. Retry later") from None

    async def catch_up(self) -> None:
        """Let requests see another process's changes. ApiError 503 if a group is lost. The caller holds the lock."""
        try:
            await self._follower.catch_up()
        except LostError as lost:
            raise unanswered(f"{lost} did not answer. Retry later") from None
        if self._follower.damage is not None:
            log.error("%s", self._follower.damage)

    async def _remember_folded(self, there: ChangeLog) -> None:
        """Remember the keys of a log's newest changes that leaf files hold."""
        for made in await run_in(self._append_thread, _folded, there, self._follower.manifest.log):
            self._note(made)

    def _note(self, made: Change) -> None:
        if made.key is not None:
            seen = replace(self._follower.seen, log=made.number)
            self.keys.remember(made.key, made.body, Written(seen, made.documents, made.replaced))


def _folded(there: ChangeLog, last: int) -> list[Change]:
    changes, number = list[Change](), max(0, last - KEPT)
    while number < last:
        try:
            for made in there.there(number, last, with_table=False):
                changes.append(made)
                number = made.number
            break
        except InputError as error:  # leaf files hold this change, or a rollback dropped it
            log.warning("%s. If changes of this object are sent again, they are made again", error)
            number = there.past(number)
    return changes


class Writers:
    """The Writer of the served index. If another index replaces that index, waiting changes go to the new Writer."""

    def __init__(self, now: Writer) -> None:
        self.now = now

    async def put(self, documents: Rows, key: str | None = None, body: str = "", *, upsert: bool = True) -> Written:
        """Write documents, as `Writer.put` does. If another index takes over first, vectors are computed again."""
        first, texts = self.now, [{name: part for name, part in each.items() if name != "vector"} for each in documents]
        return await self._by(lambda each: each.put(documents if each is first else texts, key, body, upsert=upsert))

    async def delete(self, ids: Sequence[str], key: str | None = None, body: str = "") -> Written:
        return await self._by(lambda writer: writer.delete(ids, key, body))

    async def rollback(self, number: int, key: str | None = None) -> Newest:
        """Publish an older version again, as `Publisher.rollback` does. ApiError 409 if another index is served now."""
        try:
            return await self.now.publisher.rollback(number, key)
        except MovedError:
            message = f"version {number}: is of an index that was replaced. Nothing was published"
            raise ApiError(409, "not_restored", f"{message}; allowed: a version that GET /v1/versions lists") from None

    async def _by(self, change: Callable[[Writer], Awaitable[T]]) -> T:
        while True:
            try:
                return await change(self.now)
            except MovedError:
                continue

    async def fold_forever(self) -> None:
        while True:
            await self.now.publisher.fold_forever()
