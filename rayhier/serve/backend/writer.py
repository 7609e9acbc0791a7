"""The Writer: makes changes of documents durable in the log, lets requests see them, and folds them into leaf files."""

import asyncio
import contextlib
import contextvars
import logging
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayhier.corpus.passages import DocumentLayout
from rayhier.dataset.documents import document_texts
from rayhier.index import change
from rayhier.index.assign import Assigner
from rayhier.index.embed_carried import Embedding
from rayhier.index.given import GivenDocuments, given_documents
from rayhier.model.encoded import Encoded
from rayhier.search.live import Seen
from rayhier.search.model import Model
from rayhier.search.request import Rules, rules_of
from rayhier.serve.args import WriteLimits
from rayhier.serve.backend.batching import Batches
from rayhier.serve.backend.engine import Engine, View
from rayhier.serve.backend.reranker import open_versions_reranker
from rayhier.serve.backend.version import Version
from rayhier.serve.errors import RETRY, ApiError, LostError, overloaded
from rayhier.serve.metrics import Metrics
from rayhier.spec import InputError
from rayhier.storage.artifact import Place
from rayhier.storage.change_log import Change, ChangeLog, Kind
from rayhier.storage.leaf_map import LeafMap, Manifest
from rayhier.storage.paths import locate
from rayhier.storage.writer_lease import leased

TOGETHER = 64
"""Documents of several requests that are encoded together, at most."""
KEYS, KEYS_READ = 10_000, 1_000
"""Idempotency keys that are remembered, the newest, and changes in leaf files whose keys a start reads again."""
AGAIN_SECONDS = 1.0
"""Seconds between two looks at whether the tail is to be folded, and after a fold that failed."""
log = logging.getLogger("ray.serve")


class Versions(Protocol):
    """Interface of a group of shards that can open several versions."""

    async def open(self, number: int) -> int:
        """Open a newer version too; returns the number of the log's last change in its tail."""

    async def close(self, number: int) -> None:
        """Release a version that no request reads any more."""


@dataclass(frozen=True)
class Written:
    """The outcome of a change: what a request must see to see it, and how many documents it named."""

    seen: Seen
    documents: int
    replaced: int = 0
    """Number of written documents whose ids were in the index before."""


class MovedError(Exception):
    """A change was not made: another index is served by now, whose Writer makes it."""


class Writer:
    """Appends changes to the log of an index, one at a time, in the process that answers requests."""

    def __init__(
        self,
        version: Version,
        leaf_map: LeafMap,
        model: Model,
        engine: Engine,
        groups: Sequence[Versions],
        limits: WriteLimits,
        metrics: Metrics | None = None,
        *,
        seconds: float = 30.0,
    ) -> None:
        """Write to an opened version, whose groups answer requests through the engine.

        `seconds` is the most that a request takes: so long a version stays open after the next is served. InputError
        where another server writes, or the index cannot have a tail.
        """
        spec = version.now.spec
        if spec.search.how == "level":
            raise InputError(
                "write_token_file: search.how is level, which compares documents by a tree's levels, that changes do "
                "not have; allowed: no write_token_file, or search.how leaves or codes"
            )
        self._root, self._spec, self._model, self._engine = leaf_map.root, spec, model, engine
        self._groups, self._limits, self._metrics, self._seconds = list(groups), limits, metrics, seconds
        self._assign = Assigner(model.router, spec, leaf_map.manifest.model)
        self._version, self._manifest = version, leaf_map.manifest
        self._log, self._lock = ChangeLog(leaf_map.root), asyncio.Lock()
        self._keys: OrderedDict[str, tuple[str, Written]] = OrderedDict()
        self._tail_documents, self._tail_bytes, self._oldest = 0, 0, time.monotonic()
        self._damage: str | None = None
        self._tasks = set[asyncio.Task[Any]]()
        self._moved = False
        self._pins = contextlib.ExitStack()
        self._may_write = self._pins.enter_context(leased(leaf_map.root))
        self._threads = {name: ThreadPoolExecutor(1, name) for name in ("check", "encode", "append", "fold")}
        self._threads["embed"] = ThreadPoolExecutor(1, "embed", _yield_to_others)
        self._embedding: Embedding | None = None
        self._batches: Batches[GivenDocuments, pa.Table | InputError] = Batches(self._made, TOGETHER, "put", metrics)

    def close(self) -> None:
        """Give the lease back."""
        self._pins.close()

    @property
    def seen(self) -> Seen:
        """Version and change of the log that a request reads which begins now."""
        seen = self._engine.view.seen
        if seen is None:
            raise RuntimeError("writer: got a request before it began")
        return seen

    async def begin(self) -> None:
        """Read the log's tail, which an earlier Writer left, and let requests see it."""
        manifest, first = self._manifest, self._manifest.log
        seen = Seen(manifest.model, self._version.number, first)
        self._engine.view = replace(self._engine.view, documents=manifest.documents, seen=seen, has_tail=False)
        before = self._before()
        for there in [*([] if before is None else [before]), self._log]:
            for key, body, written in await self._in("append", self._folded_keys, there, first):
                self._remember(key, body, written)
        await self._catch_up()
        if before is not None:
            try:
                await self.take_over(before)
            except InputError as error:
                log.warning("changes of the index before this one are not taken over: %s", error)

    def _before(self) -> ChangeLog | None:
        """The log of the index that current.json named before this one; None where there is none."""
        index, workdir = self._version.now.before, locate(self._version.workdir)
        published = None if index is None else Place(workdir / "index" / index).published()
        return None if published is None else ChangeLog(published.root)

    def _folded_keys(self, there: ChangeLog, last: int) -> list[tuple[str, str, Written]]:
        """Read keys, bodies and outcomes of the newest changes that leaf files hold, as far as a log has them."""
        keys = list[tuple[str, str, Written]]()
        with contextlib.suppress(InputError):  # what leaf files hold needs no log
            for made in there.there(max(0, last - KEYS_READ), last):
                if made.key is not None:
                    seen = Seen(self._manifest.model, self._version.number, made.number)
                    keys.append((made.key, made.body, Written(seen, made.documents, made.replaced)))
        return keys

    async def take_over(self, before: ChangeLog) -> None:
        """Append what another index's log has beyond this one's, encoded anew, under the same numbers and keys.

        InputError where a change cannot be read or does not fit this index; those before it are appended.
        """
        later = await self._in("append", list, before.after(self.seen.log))
        for begin in range(0, len(later), TOGETHER):
            changes = later[begin : begin + TOGETHER]
            tables = iter(await self._in("encode", self._encoded_anew, changes))
            for made in changes:
                anew = made if made.rows is None else replace(made, table=next(tables))
                if not await self._durable(anew):
                    raise InputError(f"{self._root}: another process appends to its log; allowed: one writer at a time")
                self._apply(anew, await self._present(anew.ids.to_pylist(), self.seen))

    def _encoded_anew(self, changes: Sequence[Change]) -> list[pa.Table]:
        """Make rows of this index of the documents that changes of another index wrote."""
        names = DocumentLayout.of(self._spec.corpus).schema.names
        written = [made.rows for made in changes if made.rows is not None]
        tables = [rows.filter(pc.equal(rows["rank"], 0)).select(names) for rows in written]
        given = [GivenDocuments(table, table["doc_id"].to_pylist(), None) for table in tables]
        rows = self._rows(given) if given else []
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

    async def move(self, version: Version, view: View, groups: Sequence[Versions]) -> None:
        """Let requests see this Writer's index as it was opened anew, with another spec: its model and groups."""
        async with self._lock:
            await asyncio.gather(*(group.open(self._version.number) for group in groups))
            self._version, self._groups = version.at(self._version.number), list(groups)
            self._spec, self._model, self._embedding = version.now.spec, view.model, None
            reranker = None if view.reranker is None else await self._in("fold", open_versions_reranker, self._version)
            self._engine.view = replace(
                self._engine.view,
                model=view.model,
                groups=view.groups,
                rules=self._rules(self._manifest),
                reranker=reranker,
                reranking=view.reranking,
                version=self._version,
            )

    def show(self, engine: Engine) -> None:
        """Let requests of an engine that begin from now on see the index of this Writer."""
        engine.view, self._engine = self._engine.view, engine

    async def put(self, documents: Sequence[Mapping[str, Any]], key: str | None = None, body: str = "") -> Written:
        """Write documents, which replace those with the same ids; returns once the change is durable and seen.

        InputError where a document is not allowed; ApiError 422 where a key was used with another body, 503 where
        storage refuses the change or too many changes wait to be folded. Nothing is changed then.
        """
        if (again := self._again(key, body)) is not None:
            return again
        self._check_room()
        dimension, unit = self._manifest.dimension, self._spec.encoder.similarity == "cosine"
        check = partial(given_documents, documents, self._spec.corpus, dimension, unit=unit)
        made = await self._in("check", check)
        # Documents that arrive while others are encoded are encoded together with the next.
        table, _ = await self._batches(made, len(made.table), made.vector_NM is None)
        if isinstance(table, InputError):
            raise table
        return await self._alone("put", table, made.ids, key, body)

    async def delete(self, ids: Sequence[str], key: str | None = None, body: str = "") -> Written:
        """Delete documents; ApiError 404 where an id is not there, and as `put`. Nothing is changed then."""
        if (again := self._again(key, body)) is not None:
            return again
        names = list(dict.fromkeys(ids))
        self._check_room()
        table = pa.table({"doc_id": pa.array(names, pa.string())})
        return await self._alone("delete", table, names, key, body)

    async def _alone(self, kind: Kind, table: pa.Table, ids: Sequence[str], key: str | None, body: str) -> Written:
        """Make a change, one at a time; it goes on where the request ends before, by its time limit for instance."""
        task = asyncio.create_task(self._change(kind, table, ids, key, body), context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may have

    async def _change(self, kind: Kind, table: pa.Table, ids: Sequence[str], key: str | None, body: str) -> Written:
        async with self._lock:
            while True:
                if self._moved:
                    raise MovedError
                if (again := self._again(key, body)) is not None:
                    return again
                self._check_room()  # other changes came before
                there = await self._present(ids, self.seen)
                if kind == "delete" and (missing := [name for name in ids if name not in there]):
                    message = f"ids: {len(missing)} not in the index: {missing[0]!r:.80}; nothing was changed"
                    raise ApiError(404, "no_document", f"{message}; allowed: ids of documents in the index")
                replaced = len(there) if kind == "put" else 0
                made = Change(self.seen.log + 1, kind, table, key, body, len(ids), replaced)
                if await self._durable(made):
                    return self._apply(made, there)
                await self._catch_up()  # another process took the number

    async def _durable(self, made: Change) -> bool:
        """Append a change; returns False where its number is taken. ApiError 503 where storage refuses it."""
        try:
            appended: bool = await self._in("append", self._log.append, made)
        except OSError as error:
            log.warning("the log cannot be written: %s", error)
            with contextlib.suppress(OSError, InputError):  # an error may hide that the object was written
                (there,) = await self._in("append", lambda: list(self._log.after(made.number - 1, made.number))) or [
                    None
                ]
                if there is not None and there.packed() == made.packed():
                    return True
            message = f"storage refuses changes: {error.strerror or error}; nothing was changed; retry later"
            raise ApiError(503, "storage", message, RETRY) from None
        return appended

    async def _present(self, ids: Sequence[str], seen: Seen) -> Counter[str]:
        """Count the rows of documents with some ids; ApiError 503 where a shard group does not answer."""
        try:
            return await self._engine.present(ids, seen)
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
            message = "Idempotency-Key: was used with another body; allowed: a new key for each change"
            raise ApiError(422, "key_reused", message)
        return written

    def _check_room(self) -> None:
        if self._damage is not None:
            raise ApiError(503, "log_damaged", f"{self._damage}; nothing can be written until it is mended")
        if not self._may_write():
            raise ApiError(503, "not_the_writer", "another server took over writing to this index; ask that one")
        limits = self._limits
        if self._tail_documents >= limits.max_tail_documents or self._tail_bytes >= limits.max_tail_bytes:
            raise overloaded(
                f"{self._tail_documents} documents of {self._tail_bytes} bytes wait to be folded into leaf files; "
                "retry in a second"
            )

    async def _made(self, requests: Sequence[GivenDocuments]) -> list[pa.Table | InputError]:
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
            encoded = self._model.encode([text for made in requests for text in document_texts(made.table)])
        rows, end = list[pa.Table | InputError](), 0
        for made in requests:
            begin, end = end, end + len(made.table)
            try:
                rows.append(self._assign(made.table, encoded[begin:end]))
            except InputError as error:
                rows.append(error)
        return rows

    def _apply(self, made: Change, there: Counter[str]) -> Written:
        """Let requests that begin from now on see a change, of whose documents some were `there`; returns its outcome.

        Its key is remembered.
        """
        view, seen = self._engine.view, replace(self.seen, log=made.number)
        documents = view.documents + _grown(made, there)
        self._engine.view = replace(view, documents=documents, seen=seen, has_tail=True)
        if not self._tail_documents:
            self._oldest = time.monotonic()
        self._tail_documents += made.documents
        self._tail_bytes += made.table.nbytes
        written = Written(seen, made.documents, made.replaced)
        if made.key is not None:
            self._remember(made.key, made.body, written)
        return written

    def _remember(self, key: str, body: str, written: Written) -> None:
        self._keys[key] = (body, written)
        while len(self._keys) > KEYS:
            self._keys.popitem(last=False)

    async def _catch_up(self) -> None:
        """Let requests see changes of the log that are not seen yet; those before a damaged object, where one is."""
        changes, self._damage = await self._in("append", self._after, self.seen.log)
        if self._damage is not None:
            log.error("%s", self._damage)
        for made in changes:
            self._apply(made, await self._present(made.ids.to_pylist(), self.seen))

    def _after(self, number: int) -> tuple[list[Change], str | None]:
        """Read the changes after a number, and what is wrong with the first that cannot be read."""
        changes = list[Change]()
        try:
            for made in self._log.after(number):
                changes.append(made)
        except InputError as error:
            return changes, str(error)
        return changes, None

    async def fold_forever(self) -> None:
        """Fold the tail whenever it is large or old, and look whether a damaged log was mended.

        Ends once another Writer took over.
        """
        while not self._moved:
            await asyncio.sleep(AGAIN_SECONDS)
            if self._moved:
                return
            limits = self._limits
            is_old = self._tail_documents and time.monotonic() - self._oldest >= limits.fold_seconds
            is_large = self._tail_documents >= limits.fold_documents or self._tail_bytes >= limits.fold_bytes
            try:
                if self._damage is not None:
                    async with self._lock:
                        if not self._moved:
                            await self._catch_up()
                elif (is_old or is_large) and self._may_write():
                    await self.fold()
                elif self._manifest.carried and self._may_write():
                    await self.embed()
            except Exception:
                log.exception("the log's tail cannot be folded; it is tried again")

    async def fold(self) -> None:
        """Write the tail to leaf files as a new version, and let requests see that version; older ones end in time."""
        factor, first = self._spec.index.max_leaf_factor, self._manifest.log + 1
        folded = await self._in("fold", change.fold, self._root, self._model.router, factor)
        if folded is None:  # nothing to fold; but a version may have been published that nobody serves yet
            folded = await self._in("fold", LeafMap.open, self._root)
            if folded.manifest.version <= self._version.number:
                return
        await self._serve(folded)
        await self._in("fold", self._log.gather, first, folded.manifest.log)

    async def embed(self) -> None:
        """Encode some documents whose vectors were carried from another model, as a new version."""
        embedded = await self._in("embed", self._embedded)
        if embedded is not None:
            await self._serve(embedded)

    def _embedded(self) -> LeafMap | None:
        if self._embedding is None:
            version = self._version
            self._embedding = Embedding.of_workdir(locate(version.workdir), version.now, self._model)
        return self._embedding.next(self._limits.fold_documents)

    async def _serve(self, folded: LeafMap) -> None:
        """Open a version in all groups, then let requests see it instead of the one before."""
        manifest = folded.manifest
        await asyncio.gather(*(group.open(manifest.version) for group in self._groups))
        async with self._lock:
            if self._moved:
                return
            before, version, view = self._version, self._version.at(manifest.version), self._engine.view
            reranker = None if view.reranker is None else await self._in("fold", open_versions_reranker, version)
            if self.seen.log < manifest.log:  # changes were folded that another process made, or that came late
                await self._catch_up()
            seen, documents = Seen(manifest.model, manifest.version, manifest.log), manifest.documents
            left, damage = await self._in("append", self._after, manifest.log)
            for made in left:
                if made.number > self.seen.log:
                    break
                documents += _grown(made, await self._present(made.ids.to_pylist(), seen))
                seen = replace(seen, log=made.number)
            self._engine.view = replace(
                view,
                rules=self._rules(manifest),
                documents=documents,
                count_L=np.array(manifest.counts, dtype=np.int64),
                reranker=reranker,
                seen=seen,
                has_tail=seen.log > manifest.log,
                version=version,
                leaf_map=folded,
            )
            self._version, self._manifest, self._damage = version, manifest, damage
            self._tail_documents = sum(made.documents for made in left)
            self._tail_bytes = sum(made.table.nbytes for made in left)
            self._oldest = time.monotonic()
        if self._metrics is not None:
            self._metrics.serves(manifest.version)
        closing = asyncio.create_task(self._close_later(before.number), context=contextvars.Context())
        self._tasks.add(closing)
        closing.add_done_callback(self._ended)

    def _rules(self, manifest: Manifest) -> Rules:
        """Rules of requests for a version."""
        before = self._engine.view.rules
        return replace(rules_of(self._spec, manifest), groups=before.groups, limits=before.limits)

    async def _close_later(self, number: int) -> None:
        """Release a version once every request that may have begun with it has ended."""
        await asyncio.sleep(self._seconds + 1)
        await asyncio.gather(*(group.close(number) for group in self._groups))

    async def _in(self, thread: str, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads[thread], work, *arguments)


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

    async def _by(self, change: Callable[[Writer], Awaitable[Written]]) -> Written:
        while True:
            try:
                return await change(self.now)
            except MovedError:
                continue

    async def fold_forever(self) -> None:
        """Fold the tail of the index that is served, until cancelled."""
        while True:
            await self.now.fold_forever()


def _grown(made: Change, there: Counter[str]) -> int:
    """Return by how many documents (of passages: passages) a change makes an index larger; some were `there`."""
    written = 0 if made.rows is None else int(pc.sum(pc.equal(made.rows["rank"], 0)).as_py() or 0)
    return written - there.total()
