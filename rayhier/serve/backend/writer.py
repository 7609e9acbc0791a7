"""The Writer: makes changes of documents durable in the log, lets requests see them, and folds them into leaf files."""

import asyncio
import contextlib
import contextvars
import logging
import os
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.corpus.passages import DocumentLayout
from rayhier.dataset.documents import document_texts
from rayhier.embed.encode import TextEncoder
from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.index.compact import compact_here
from rayhier.index.embed_carried import Embedding
from rayhier.index.given import GivenDocuments, given_documents
from rayhier.index.pack import pack
from rayhier.index.stats import Stats
from rayhier.index.vacuum import vacuum
from rayhier.model.encoded import Encoded
from rayhier.model.precision import resolve
from rayhier.search.live import Seen
from rayhier.search.memory import give_back
from rayhier.search.model import Model
from rayhier.serve.args import WriteLimits
from rayhier.serve.backend.batching import Batches
from rayhier.serve.backend.follower import Follower
from rayhier.serve.backend.maintenance import Maintenance
from rayhier.serve.errors import RETRY, ApiError, LostError, overloaded
from rayhier.serve.metrics import Metrics
from rayhier.spec import InputError, JobSpec
from rayhier.storage import leaf_map
from rayhier.storage.artifact import Place
from rayhier.storage.change_log import KEPT, Change, ChangeLog, Kind
from rayhier.storage.leaf_map import LeafMap, Manifest, key_of
from rayhier.storage.paths import locate
from rayhier.storage.writer_lease import leased

TOGETHER = 64
"""Documents of several requests that are encoded together, and looked up together, at most."""
APPENDED_SECONDS = 0.02
"""Seconds after which changes that were appended are answered before others are."""
KEYS = 10_000
"""Idempotency keys that are remembered, the newest."""
ROLLBACKS_READ = 100
"""Versions, the newest, among which the one that an idempotency key published is looked for."""
ENDS = "the server ends; the change is there or not: send it again"
REUSED = "Idempotency-Key: was used with another body; allowed: a new key for each change"
VOID = 0.5
"""Share of rows of removed documents above which all files are written anew."""
AGAIN_SECONDS = 1.0
"""Seconds between two looks at whether the tail is to be folded, and after a fold that failed."""
T = TypeVar("T")
log = logging.getLogger("ray.serve")


@dataclass(frozen=True)
class Written:
    """The outcome of a change: what a request must see to see it, and how many documents it named."""

    seen: Seen
    documents: int
    replaced: int = 0
    """Number of written documents whose ids were in the index before."""


@dataclass(frozen=True)
class RolledBack:
    """The outcome of a rollback: what a request must see to see it, and the documents of the version."""

    seen: Seen
    documents: int


@dataclass(eq=False)
class _Wanted:
    """A change that a request asks for, and what comes of it."""

    kind: Kind
    table: pa.Table
    ids: Sequence[str]
    key: str | None
    body: str
    placed: Assigner | None = None
    """The assigner that chose leaves for the documents to be written; None where the change deletes documents."""
    outcome: "asyncio.Future[Written]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def ends(self, outcome: Written | Exception) -> None:
        """Answer the request, unless it ended before."""
        if self.outcome.done():
            return
        if isinstance(outcome, Exception):
            self.outcome.set_exception(outcome)
        else:
            self.outcome.set_result(outcome)


@dataclass(frozen=True)
class _Next:
    """A change that comes next in the log, of whose documents, or their passages, some are there before it."""

    wanted: _Wanted
    change: Change
    before: Counter[str]


class MovedError(Exception):
    """A change was not made: another index is served by now, whose Writer makes it."""


class Writer:
    """Appends changes to the log of an index, one after another; an engine's requests see them by a follower."""

    def __init__(
        self,
        follower: Follower,
        limits: WriteLimits,
        metrics: Metrics | None = None,
    ) -> None:
        """Write to the index that a follower follows; InputError where another writes, or it cannot have a tail."""
        spec = follower.version.now.spec
        if spec.search.how == "level":
            raise InputError(
                "write_token_file: search.how is level, which compares documents by a tree's levels, that changes do "
                "not have; allowed: no write_token_file, or search.how leaves or codes"
            )
        self._root, self._limits = follower.root, limits
        self._assigner = Assigner(follower.engine.view.model.router, spec, follower.manifest.model)
        self._follower, self._lock, self._log = follower, follower.lock, follower.log
        follower.applied = self._note
        self._keys: OrderedDict[str, tuple[str, Written]] = OrderedDict()
        self._tail_documents, self._tail_bytes, self._oldest = 0, 0, time.monotonic()
        self._published, self._publishing, self._is_tidying = 0, asyncio.Lock(), False
        self._tasks, self._moved = set[asyncio.Task[Any]](), False
        self._maintenance = Maintenance(follower.root)
        self._lease = contextlib.ExitStack()
        self._may_write = self._lease.enter_context(leased(follower.root))
        self._threads = {name: ThreadPoolExecutor(1, name) for name in ("check", "encode", "append", "fold", "tidy")}
        self._threads["embed"] = ThreadPoolExecutor(1, "embed", _yield_to_others)
        self._embedding: Embedding | None = None
        self._batches: Batches[GivenDocuments, pa.Table | InputError] = Batches(self._placed, TOGETHER, "put", metrics)
        self._wanted, self._is_changing = deque[_Wanted](), False

    def close(self) -> None:
        """Give the lease back."""
        self._lease.close()

    @property
    def _spec(self) -> JobSpec:
        return self._follower.version.now.spec

    @property
    def _model(self) -> Model:
        return self._follower.engine.view.model

    @cached_property
    def _encoder(self) -> TextEncoder:
        """Encodes documents in the number format in which an index is built, which need not be that of queries."""
        encoder = self._model.text_encoder
        is_same = resolve(self._spec.encoder.precision, encoder.device) == encoder.dtype
        return encoder if is_same else self._follower.version.model().text_encoder

    @property
    def _assign(self) -> Assigner:
        """Places documents by the router of the version that requests read."""
        if self._assigner.router is not self._model.router:
            self._assigner = Assigner(self._model.router, self._spec, self._follower.manifest.model)
        return self._assigner

    @property
    def seen(self) -> Seen:
        """Version and change of the log that a request reads which begins now."""
        return self._follower.seen

    async def begin(self) -> None:
        """Let requests see the newest version, and the log's tail, which an earlier Writer left.

        LostError where a shard group does not answer.
        """
        before = self._before()
        for there in [*([] if before is None else [before]), self._log]:
            for key, body, written in await self._in("append", self._folded_keys, there, self._follower.manifest.log):
                self._remember(key, body, written)
        for made in await self._in("append", self._follower.begin):
            self._note(made)
        await self._in("encode", lambda: self._encoder)  # the first document does not wait for it
        if self._follower.damage is not None:
            log.error("%s", self._follower.damage)
        await self._serve_newest()  # an earlier Writer may have published it before it gave the lease back
        if before is not None:
            try:
                await self.take_over(before)
            except InputError as error:
                log.warning("changes of the index before this one are not taken over: %s", error)

    def _before(self) -> ChangeLog | None:
        """The log of the index that current.json named before this one; None where there is none."""
        version = self._follower.version
        index, workdir = version.now.before, locate(version.workdir)
        published = None if index is None else Place(workdir / "index" / index).published()
        return None if published is None else ChangeLog(published.root)

    def _folded_keys(self, there: ChangeLog, last: int) -> list[tuple[str, str, Written]]:
        """Read keys, bodies and outcomes of the newest changes that leaf files hold, as far as a log has them."""
        keys, manifest = list[tuple[str, str, Written]](), self._follower.manifest
        with contextlib.suppress(InputError):  # what leaf files hold needs no log
            for made in there.there(max(0, last - KEPT), last, with_table=False):
                if made.key is not None:
                    seen = Seen(manifest.model, manifest.version, made.number)
                    keys.append((made.key, made.body, Written(seen, made.documents, made.replaced)))
        return keys

    async def take_over(self, before: ChangeLog) -> None:
        """Append what another index's log has beyond this one's, encoded anew, under the same numbers and keys.

        InputError where a change cannot be read or does not fit this index; those before it are appended.
        """
        later, router = await self._in("append", list, before.after(self.seen.log)), self._follower.manifest.router
        for begin in range(0, len(later), TOGETHER):
            changes = later[begin : begin + TOGETHER]
            tables = iter(await self._in("encode", self._encoded_anew, changes))
            ids = {made.number: made.ids.to_pylist() for made in changes}
            there = await self._present([name for names in ids.values() for name in names], self.seen)
            for made in changes:
                anew = made if made.rows is None else replace(made, table=next(tables), router=router)
                if not await self._durable([anew]):
                    raise InputError(f"{self._root}: another process appends to its log; allowed: one writer at a time")
                names = ids[made.number]
                self._follower.apply(anew, Counter({name: there[name] for name in names}))
                written = _counted(anew)
                there.update({name: written[name] - there[name] for name in names})

    def _encoded_anew(self, changes: Sequence[Change]) -> list[pa.Table]:
        """Make rows of this index of the documents that changes of another index wrote."""
        names = DocumentLayout.of(self._spec.corpus).schema.names
        written = [made.rows for made in changes if made.rows is not None]
        tables = [rows.filter(pc.equal(rows["rank"], 0)).select(names) for rows in written]
        requests = [GivenDocuments(table, table["doc_id"].to_pylist(), None) for table in tables]
        rows = self._rows(requests) if requests else []
        for table in rows:
            if isinstance(table, InputError):
                raise table
        return [table for table in rows if not isinstance(table, InputError)]

    @contextlib.asynccontextmanager
    async def handing_over(self, to: "Writer") -> AsyncIterator["Writer"]:
        """Let changes wait during the block, at whose start another Writer has all that were made.

        Unless the block fails, they are then refused with MovedError, and this Writer, which the block gets, changes
        nothing any more.
        """
        await to.take_over(self._log)
        async with self._lock:
            await to.take_over(self._log)
            to.know(self._keys)
            yield self
            self._moved = True

    def know(self, keys: Mapping[str, tuple[str, Written]]) -> None:
        """Remember idempotency keys, with their bodies' hashes and outcomes, of changes that another Writer made."""
        for key, (body, written) in keys.items():
            self._remember(key, body, written)

    async def put(self, documents: Sequence[Mapping[str, Any]], key: str | None = None, body: str = "") -> Written:
        """Write documents, which replace those with the same ids; returns once the change is durable and seen.

        InputError where a document is not allowed; ApiError 422 where a key was used with another body, 503 where
        storage refuses the change or too many changes wait to be folded. Nothing is changed then.
        """
        if (again := self._again(key, body)) is not None:
            return again
        self._check_room()
        dimension, unit = self._follower.manifest.dimension, self._spec.encoder.similarity == "cosine"
        check = partial(given_documents, documents, self._spec.corpus, dimension, unit=unit)
        made, placed = await self._in("check", check), self._assign
        # Documents that arrive while others are encoded are encoded together with the next.
        table, _ = await self._batches(made, len(made.table), made.vector_NM is None)
        if isinstance(table, InputError):
            raise table
        return await self._made(_Wanted("put", table, made.ids, key, body, placed))

    async def delete(self, ids: Sequence[str], key: str | None = None, body: str = "") -> Written:
        """Delete documents; ApiError 404 where an id is not there, and as `put`. Nothing is changed then."""
        if (again := self._again(key, body)) is not None:
            return again
        names = list(dict.fromkeys(ids))
        self._check_room()
        table = pa.table({"doc_id": pa.array(names, pa.string())})
        return await self._made(_Wanted("delete", table, names, key, body))

    async def _made(self, wanted: _Wanted) -> Written:
        """Make a change after those that wait; once it has begun, it goes on where the request ends before."""
        self._wanted.append(wanted)
        if not self._is_changing:
            self._is_changing = True
            self._begin(self._change_waiting())
        return await wanted.outcome

    async def _change_waiting(self) -> None:
        try:
            while self._wanted:
                async with self._lock:
                    await self._change(self._taken())
        finally:
            self._is_changing = False

    def _taken(self) -> list[_Wanted]:
        """Take the first changes that wait, but for those whose requests ended."""
        taken, documents = list[_Wanted](), 0
        while self._wanted and (not taken or documents + len(self._wanted[0].ids) <= TOGETHER):
            wanted = self._wanted.popleft()
            if not wanted.outcome.done():
                taken.append(wanted)
                documents += len(wanted.ids)
        return taken

    async def rollback(self, number: int, key: str | None = None) -> RolledBack:
        """Publish the content of an older version as the newest one, and serve it; the log's tail is left behind.

        ApiError 404 where there is no such version, 409 where it cannot be served, 422 where the key was used for
        another version, 503 where storage refuses it or a shard group does not answer.
        """
        return await self._to_its_end(self._roll_back(number, key))

    async def _to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work that goes on where the request ends before."""
        task = asyncio.create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may have

    async def _change(self, wanted: Sequence[_Wanted]) -> None:
        """Make changes one after another, an object of the log each; one that is refused changes nothing."""
        while left := [each for each in wanted if not each.outcome.done()]:
            try:
                await self._change_some(left)
            except Exception as error:  # noqa: BLE001  every request gets it
                for each in left:
                    self._end_again(each)
                    each.ends(error)
            except asyncio.CancelledError:
                for each in left:
                    each.ends(overloaded(ENDS))
                raise

    async def _change_some(self, wanted: Sequence[_Wanted]) -> None:
        """Make changes, but for those that must come later; an error that it raises concerns all that are not made.

        Later come a change whose key an earlier one has, and all from one on that is refused after others, or whose
        number another process took.
        """
        if self._moved:
            raise MovedError
        there = await self._present(list({name for each in wanted for name in each.ids}), self.seen)
        nexts, keys, documents, size = list[_Next](), set[str](), 0, 0
        for each in wanted:
            if each.key in keys or self._end_again(each):
                continue
            try:
                self._check_room(documents, size)  # other changes came before
                made = await self._made_of(each, there, self.seen.log + len(nexts) + 1)
            except (ApiError, InputError) as error:
                if nexts:  # it may be refused for what these change, which is not durable yet
                    break
                each.ends(error)
                continue
            nexts.append(_Next(each, made, Counter({name: there[name] for name in each.ids})))
            written, documents, size = _counted(made), documents + made.documents, size + made.table.nbytes
            there.update({name: written[name] - there[name] for name in each.ids})
            keys |= set() if each.key is None else {each.key}
        while nexts:
            appended = await self._durable([each.change for each in nexts])
            if not appended:
                await self._catch_up()
                return
            for entry in nexts[:appended]:
                self._follower.apply(entry.change, entry.before)
            if not self._end_appended(nexts[:appended]):
                return
            nexts = nexts[appended:]

    def _end_appended(self, appended: Sequence[_Next]) -> bool:
        """Answer requests whose changes are in the log; returns False where another Writer may have read it before."""
        try:
            self._check_lease()
        except ApiError as error:
            for each in appended:
                each.wanted.ends(error)
            return False
        for each in appended:
            seen = replace(self.seen, log=each.change.number)
            each.wanted.ends(Written(seen, each.change.documents, each.change.replaced))
        return True

    def _end_again(self, wanted: _Wanted) -> bool:
        """Answer a request whose key an earlier one had; returns False where there is none."""
        try:
            again = self._again(wanted.key, wanted.body)
        except ApiError as error:
            wanted.ends(error)
            return True
        if again is not None:
            wanted.ends(again)
        return again is not None

    async def _made_of(self, wanted: _Wanted, there: Counter[str], number: int) -> Change:
        """Make a change of this number; `there` counts its documents before it; ApiError 404 where one is missing."""
        ids, table, router = wanted.ids, wanted.table, self._follower.manifest.router
        if wanted.kind == "delete" and (missing := [name for name in ids if not there[name]]):
            message = f"ids: {len(missing)} not in the index: {missing[0]!r:.80}; nothing was changed"
            raise ApiError(404, "no_document", f"{message}; allowed: ids of documents in the index")
        if (
            wanted.kind == "put" and (assign := self._assign) is not wanted.placed
        ):  # leaves were split, or others served
            table = await self._in("encode", assign.again, table)
        replaced = sum(there[name] > 0 for name in ids) if wanted.kind == "put" else 0
        return Change(number, wanted.kind, table, wanted.key, wanted.body, len(ids), replaced, router)

    async def _roll_back(self, number: int, key: str | None) -> RolledBack:
        async with self._publishing:
            if self._moved:
                raise MovedError
            manifest: Manifest | None = await self._in("fold", self._rolled_back, key)
            if manifest is not None and manifest.restored != number:
                raise ApiError(422, "key_reused", REUSED)
            if manifest is None:
                self._check_lease()
                await self._check_whole(number)
                async with self._lock:
                    if self._moved:
                        raise MovedError
                    manifest = await self._in("fold", self._restore, number, key)
            if manifest.version > self.seen.version:
                try:
                    await self._serve(manifest.version)
                except LostError as lost:
                    message = f"{lost} did not answer; version {manifest.version} is served once it does"
                    raise ApiError(503, "shards_lost", message, RETRY) from None
        self._check_lease()
        return RolledBack(replace(self.seen, version=manifest.version, log=manifest.log), manifest.documents)

    async def _check_whole(self, number: int) -> None:
        """Raise ApiError where a version is not there, or the groups cannot open it."""
        if number not in await self._in("fold", leaf_map.versions, self._root):
            message = f"version: got {number}; allowed: a version that GET /v1/versions lists"
            raise ApiError(404, "no_version", message)
        try:
            await self._follower.open(number)
        except InputError as error:
            raise ApiError(409, "not_restored", f"{error}; nothing was published") from None
        except LostError as lost:
            message = f"{lost} cannot open version {number}; nothing was published; retry later"
            raise ApiError(503, "shards_lost", message, RETRY) from None

    def _restore(self, number: int, key: str | None) -> Manifest:
        try:
            return change.restore(self._root, number, self._follower.manifest.model, key).manifest
        except InputError as error:
            raise ApiError(409, "not_restored", str(error)) from None
        except OSError as error:
            message = f"storage refuses changes: {error.strerror or error}; retry later"
            raise ApiError(503, "storage", message, RETRY) from None

    def _rolled_back(self, key: str | None) -> Manifest | None:
        """Return the version that an earlier request with the same key published."""
        newest = () if key is None else leaf_map.newest_first(self._root, None, ROLLBACKS_READ)
        return next((manifest for manifest in newest if manifest.key == key), None)

    async def _durable(self, changes: Sequence[Change]) -> int:
        """Append the first of some changes; returns how many, 0 where the number of the first is taken.

        ApiError 503 where storage refuses the first.
        """
        appended, error = await self._in("append", self._append, changes)
        if error is None:
            return int(appended)
        log.warning("the log cannot be written: %s", error)
        message = f"storage refuses changes: {error.strerror or error}; nothing was changed; retry later"
        raise ApiError(503, "storage", message, RETRY)

    def _append(self, changes: Sequence[Change]) -> tuple[int, OSError | None]:
        began = time.monotonic()
        for place, made in enumerate(changes):
            if place and (time.monotonic() - began > APPENDED_SECONDS or not self._may_write()):
                return place, None
            try:
                if not self._log.append(made):
                    return place, None
            except OSError as error:
                if not self._is_there(made):
                    return place, None if place else error  # the next call says it
        return len(changes), None

    def _is_there(self, made: Change) -> bool:
        """Return True where storage has a change though it answered with an error."""
        with contextlib.suppress(OSError, InputError):
            return [there.packed() for there in self._log.after(made.number - 1, made.number)] == [made.packed()]
        return False

    async def _present(self, ids: Sequence[str], seen: Seen) -> Counter[str]:
        """Count the rows of documents with some ids; ApiError 503 where a shard group does not answer."""
        try:
            return await self._follower.engine.present(ids, seen)
        except LostError as lost:
            raise ApiError(
                503, "shards_lost", f"{lost} did not answer; nothing was changed; retry later", RETRY
            ) from None

    def _again(self, key: str | None, body: str) -> Written | None:
        """Return the outcome of an earlier request with the same key; ApiError 422 where its body was another."""
        if key is None or key not in self._keys:
            return None
        before, written = self._keys[key]
        if before != body:
            raise ApiError(422, "key_reused", REUSED)
        self._check_lease()
        return written

    def _check_room(self, documents: int = 0, size: int = 0) -> None:
        """Raise ApiError 503 unless a change may be appended after so many further documents and bytes."""
        if (damage := self._follower.damage) is not None:
            raise ApiError(503, "log_damaged", f"{damage}; nothing can be written until it is mended")
        self._check_lease()
        documents, size = documents + self._tail_documents, size + self._tail_bytes
        if documents >= self._limits.max_tail_documents or size >= self._limits.max_tail_bytes:
            message = f"{documents} documents of {size} bytes wait to be folded into leaf files; retry in a second"
            raise overloaded(message)

    async def _placed(self, requests: Sequence[GivenDocuments]) -> list[pa.Table | InputError]:
        """Make rows of the leaf map of several requests, all with vectors or all without."""
        rows: list[pa.Table | InputError] = await self._in("encode", self._rows, requests)
        return rows

    def _rows(self, requests: Sequence[GivenDocuments]) -> list[pa.Table | InputError]:
        """Encode documents of requests where they have no vectors, and route them: rows of the leaf map for each.

        Of a request that is refused the error: others are not refused with it.
        """
        vectors = [made.vector_NM for made in requests if made.vector_NM is not None]
        if vectors:
            encoded = Encoded.of(np.concatenate(vectors))
        else:
            texts = [text for made in requests for text in document_texts(made.table)]
            encoded = self._encoder.encode_for(self._model.router.reader, texts)
        rows, end, assign = list[pa.Table | InputError](), 0, self._assign
        for made in requests:
            begin, end = end, end + len(made.table)
            try:
                rows.append(assign(made.table, encoded[begin:end]))
            except InputError as error:
                rows.append(error)
        return rows

    def _check_lease(self) -> None:
        if not self._may_write():
            message = "the lease of this Writer is over, and another may write; a change is there or not: send it again"
            raise ApiError(503, "not_the_writer", message, RETRY)

    def _note(self, made: Change) -> None:
        """Count a change that requests see from now on, and remember its key."""
        if not self._tail_documents:
            self._oldest = time.monotonic()
        self._tail_documents += made.documents
        self._tail_bytes += made.table.nbytes
        if made.key is not None:
            seen = replace(self.seen, log=made.number)
            self._remember(made.key, made.body, Written(seen, made.documents, made.replaced))

    def _remember(self, key: str, body: str, written: Written) -> None:
        self._keys[key] = (body, written)
        while len(self._keys) > KEYS:
            self._keys.popitem(last=False)

    async def _catch_up(self) -> None:
        """Let requests see changes of the log that another process made; ApiError 503 where a shard group is lost."""
        try:
            await self._follower.catch_up()
        except LostError as lost:
            raise ApiError(503, "shards_lost", f"{lost} did not answer; retry later", RETRY) from None
        if self._follower.damage is not None:
            log.error("%s", self._follower.damage)

    async def fold_forever(self) -> None:
        """Fold the tail whenever it is large or old, and look whether a damaged log was mended.

        Ends once another Writer took over.
        """
        while not self._moved:
            await asyncio.sleep(AGAIN_SECONDS)
            limits = self._limits
            is_old = self._tail_documents and time.monotonic() - self._oldest >= limits.fold_seconds
            is_large = self._tail_documents >= limits.fold_documents or self._tail_bytes >= limits.fold_bytes
            try:
                if self._moved:
                    return
                if self._published > self.seen.version:
                    async with self._publishing:
                        await self._serve_newest()
                elif self._follower.damage is not None:
                    async with self._lock:
                        await self._catch_up()
                elif (is_old or is_large) and self._may_write():
                    await self.fold()
                elif self._follower.manifest.carried and self._may_write():
                    await self.embed()
                elif self._maintenance.may_be_due and self._may_write():
                    async with self._publishing:
                        await self._serve_newest()
                        await self._maintain()
            except Exception:
                log.exception("the log's tail cannot be folded; it is tried again")

    async def fold(self) -> None:
        """Write the tail to leaf files as a new version, and let requests see that version; older ones end in time.

        Then leaves that grew are split, where it pays, and small files are packed in the background.
        """
        async with self._publishing:
            if self._moved:
                return
            factor = self._spec.index.max_leaf_factor
            await self._serve_newest()  # one that nobody serves yet may have another router
            await self._in("fold", change.fold, self._root, self._assign, factor)
            await self._serve_newest()
            self._maintenance.may_be_due = True
            await self._maintain()
        if not self._is_tidying:
            self._begin(self._tidy())

    async def _maintain(self) -> None:
        """Split some leaves that grew, and give small ones up, where it pays; the caller holds `_publishing`."""
        step = self._maintenance.next(self._follower.manifest, self._model.trained, self._spec)
        if step is None or self._moved:
            return
        with self._maintenance.resting():
            try:
                await self._in("fold", step)
                await self._serve_newest()
            except (InputError, OSError):
                log.exception("leaves cannot be split; it is tried again")

    async def embed(self) -> None:
        """Encode some documents whose vectors were carried from another model, as a new version."""
        if await self._in("embed", self._embedded) is not None:
            async with self._publishing:
                await self._serve_newest()

    def _embedded(self) -> LeafMap | None:
        if self._embedding is None:
            version = self._follower.version
            self._embedding = Embedding.of_workdir(locate(version.workdir), version.now, self._model)
        return self._embedding.next(self._limits.fold_documents)

    async def _tidy(self) -> None:
        """Pack small files into larger ones, and remove old versions where the limits say so, beside further folds."""
        self._is_tidying = True
        try:
            while not self._moved and await self._in("tidy", self._tidied) is not None:
                async with self._publishing:
                    await self._serve_newest()
            if self._limits.keep_versions is not None and not self._moved:
                await self._in("tidy", vacuum, self._root, self._limits.keep_versions)
        except Exception:
            log.exception("files cannot be packed or removed; it is tried again after the next fold")
        finally:
            self._is_tidying = False

    def _tidied(self) -> LeafMap | None:
        """Publish a version in fewer files; None where they are few, and without many removed rows."""
        packed, manifest = pack(self._root), LeafMap.open(self._root).manifest
        if packed is None and not manifest.carried and Stats.of(manifest).void > VOID:
            return compact_here(self._spec, self._root)
        return packed

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Let work go on beside requests."""
        task = asyncio.create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _serve_newest(self) -> None:
        number = (await self._in("fold", leaf_map.versions, self._root))[-1]
        if number > self.seen.version and not self._moved:
            await self._serve(number)

    async def _serve(self, number: int) -> None:
        """Let requests see a version that was published; the changes that its files hold become one object."""
        self._published, first = number, self._follower.manifest.log + 1
        left = await self._follower.move(number)
        self._tail_documents = sum(made.documents for made in left)
        self._tail_bytes = sum(made.table.nbytes for made in left)
        self._oldest = time.monotonic()
        await self._in("fold", self._log.gather, first, self._follower.manifest.log)
        await self._in("fold", give_back)

    async def _in(self, thread: str, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads[thread], work, *arguments)


def _counted(made: Change) -> Counter[str]:
    """Count the documents, or passages, that a change wrote, by id."""
    if made.rows is None:
        return Counter()
    ids = made.rows[key_of(made.rows.column_names)]
    return Counter(ids.filter(pc.equal(made.rows["rank"], 0)).to_pylist())


def _yield_to_others() -> None:
    """Let this thread have a core only where no other thread needs it, as far as the system knows such threads."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


class Writers:
    """The Writer of the index that is served; a change that waits while another index takes its place goes to that."""

    def __init__(self, now: Writer) -> None:
        self.now = now

    async def put(self, documents: Sequence[Mapping[str, Any]], key: str | None = None, body: str = "") -> Written:
        """Write documents, as `Writer.put` does."""
        return await self._by(lambda writer: writer.put(documents, key, body))

    async def delete(self, ids: Sequence[str], key: str | None = None, body: str = "") -> Written:
        """Delete documents, as `Writer.delete` does."""
        return await self._by(lambda writer: writer.delete(ids, key, body))

    async def rollback(self, number: int, key: str | None = None) -> RolledBack:
        """Publish an older version again, as `Writer.rollback` does; ApiError 409 where another index is served by now.

        The number is that of a version of the index that was served.
        """
        try:
            return await self.now.rollback(number, key)
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
            await self.now.fold_forever()
