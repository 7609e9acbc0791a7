"""Keeps the view of an engine up to date: which version of an index, and which change of its log, requests read.

The Writer and the ingresses follow the index in the same way. The Writer reads changes of earlier Writers from the log.
An ingress gets the newest state from the Writer, or reads storage itself if the Writer is silent.

A change is answered once each reader (a server that follows the Writer) sees it, or may no longer answer. A reader
keeps asking the Writer for the newest state, and each call says which state its own requests see. After each answered
call, the reader may answer requests without reading storage until `SECONDS` after the reader sent the call. The Writer
counts the same time from the arrival of the call, which is later, so no clocks are compared. Once the time is over, the
reader reads storage before each request. Requests that begin during such a read share the next read.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from rayhier.index.change import last_rows
from rayhier.index.find import find
from rayhier.search.routing.routes import Model
from rayhier.search.snapshot import Seen
from rayhier.serve.backend.engine import Engine, Shards, View
from rayhier.serve.backend.queues import Batches
from rayhier.serve.backend.version import Version
from rayhier.serve.errors import ApiError, LostError
from rayhier.serve.metrics import Metrics
from rayhier.spec import InputError, JobSpec
from rayhier.storage.change_log import Change, ChangeLog
from rayhier.storage.leaf_map import Manifest, versions
from rayhier.storage.writer_lease import clock

if TYPE_CHECKING:  # imports Ray
    from rayhier.serve.backend.handles import WriterHandle

SECONDS = 3.0
"""Seconds for which a reader may answer requests after it sent a call that the Writer answered."""
HELD_SECONDS = 0.5
"""Seconds after which the Writer answers a reader's call if nothing has changed."""
BEHIND_SECONDS = 0.1
"""Seconds between two calls to a Writer that has not seen yet what the reader read from storage."""
AGAIN_SECONDS = 0.2
"""Seconds between two calls to a Writer that does not answer."""
WRITER = "writer"
log = logging.getLogger("ray.serve")


@dataclass(frozen=True)
class Newest:
    """The newest state of an index that requests may see, or the state that a rollback made."""

    seen: Seen
    documents: int


@dataclass(frozen=True)
class TailSize:
    """Size of the log's tail: documents and bytes of the changes that are not in leaf files."""

    documents: int
    bytes: int
    oldest: float
    """Time (`time.monotonic`) at which requests first saw the oldest change of the tail. Now if the tail is empty."""


class Follower:
    """Replaces an engine's view (the state that requests see) if the index changes. To change the view, hold `lock`."""

    def __init__(
        self, view: View, groups: Sequence[Shards], metrics: Metrics | None, pins: contextlib.ExitStack
    ) -> None:
        """Follow the version that a view has opened. `pins` protect the version from vacuum while it is served."""
        self.root, self.view = view.leaf_map.root, view
        self._engine: Engine | None = None
        self.log, self.lock = ChangeLog(self.root), asyncio.Lock()
        self.damage: str | None = None
        """Message about the first change of the log that cannot be read. None if all can be read."""
        self.refused: str | None = None
        """Why the newest version on storage is not served. None if the newest known version is served."""
        self.applied: Callable[[Change], None] = lambda _: None
        """Callback for each change, as soon as requests see it."""
        self._groups, self._metrics = list(groups), metrics
        self._pins, self._has_left = pins, False
        self._tail = deque[tuple[int, int, int, float]]()
        self._thread = ThreadPoolExecutor(1, "follow")

    def close(self) -> None:
        self._pins.close()

    @property
    def version(self) -> Version:
        return self.view.version

    @property
    def spec(self) -> JobSpec:
        return self.version.now.spec

    @property
    def model(self) -> Model:
        return self.view.model

    @property
    def manifest(self) -> Manifest:
        return self.view.leaf_map.manifest

    @property
    def seen(self) -> Seen:
        """Model, version and last change of the log that new requests read."""
        return self.view.seen

    @property
    def newest(self) -> Newest:
        return Newest(self.seen, self.view.documents)

    @property
    def tail(self) -> TailSize:
        tail = [each for each in self._tail if each[0] > self.manifest.log]
        documents, sizes = sum(each[1] for each in tail), sum(each[2] for each in tail)
        return TailSize(documents, sizes, tail[0][3] if tail else time.monotonic())

    def _count(self, made: Change) -> None:
        while self._tail and self._tail[0][0] <= self.manifest.log:
            self._tail.popleft()
        self._tail.append((made.number, made.documents, made.table.nbytes, time.monotonic()))

    def begin(self) -> None:
        """Let requests see the tail of the opened version. InputError if `search.how: level` cannot read the tail."""
        manifest = self.manifest
        changes, self.damage = self._after(manifest.log)
        if changes and self.spec.search.how == "level":
            raise InputError(
                f"{self.root}: its change log has a tail, which search.how level does not read; allowed: fold it first "
                "with rayhier index fold WORKDIR"
            )
        stored = find(self.view.leaf_map, _ids(changes)) if changes else None
        hidden = 0 if stored is None else int(pc.sum(pc.equal(stored["rank"], 0)).as_py() or 0)
        seen = Seen(manifest.model, manifest.version, changes[-1].number if changes else manifest.log)
        documents = manifest.documents + _written(changes) - hidden
        self._show(replace(self.view, documents=documents, seen=seen))
        for made in changes:
            self._count(made)
            self.applied(made)

    def apply(self, made: Change, there: Counter[str]) -> None:
        """Let requests see the next change. `there` counts the rows that the change replaces or deletes."""
        documents = self.newest.documents + _written([made]) - there.total()
        seen = replace(self.seen, log=made.number)
        self._show(replace(self.view, documents=documents, seen=seen))
        self._count(made)
        self.applied(made)

    async def catch_up(self) -> None:
        """Let requests see the log's later changes, up to a damaged object. LostError if a group does not answer."""
        changes, self.damage = await self._in(self._after, self.seen.log)
        for made in changes:
            self.apply(made, await self.view.present(made.ids.to_pylist(), self.seen))

    async def open(self, number: int) -> None:
        await asyncio.gather(*(group.open(number) for group in self._groups))

    async def move(self, number: int) -> None:
        """Let requests see a newer version, once all groups have opened it. LostError if a group does not answer."""
        while True:
            groups, view = self._groups, self.view
            await self.open(number)
            opened, pins = await self._in(self._opened, number, view)
            async with self.lock:
                with pins:
                    if number < self.seen.version:
                        return
                    if groups is self._groups:  # otherwise the index was reopened with another spec meanwhile
                        await self._move(opened, pins)
                        return

    async def _move(self, opened: View, pins: contextlib.ExitStack) -> None:
        manifest = opened.leaf_map.manifest
        await self.catch_up()
        changes: list[Change]
        changes, self.damage = await self._in(self._after, manifest.log)
        seen, hidden = Seen(manifest.model, manifest.version, manifest.log), 0
        if changes:
            hidden = (await self.view.present(_ids(changes).to_pylist(), seen)).total()
        documents = manifest.documents + _written(changes) - hidden
        last, before = changes[-1].number if changes else manifest.log, self.seen.log
        self._serve(opened, pins.pop_all(), Newest(replace(seen, log=last), documents))
        for made in changes:
            if made.number > before:  # also if earlier changes cannot be read any more
                self._count(made)
                self.applied(made)

    async def reopen(self, view: View, groups: Sequence[Shards]) -> None:
        """Serve the same index with another spec. The caller opened `view` and `groups` by the new spec."""
        async with self.lock:
            number = self.seen.version
            await asyncio.gather(*(group.open(number) for group in groups))
            opened, pins = await self._in(self._opened, number, view)
            self._groups = list(groups)
            self._serve(opened, pins, self.newest)

    def leave(self) -> None:
        """Stop updating the engine, which now serves another index, and release the version."""
        self._engine, self._metrics, self._has_left = None, None, True
        self.close()

    def show_to(self, engine: Engine) -> None:
        engine.view, self._engine = self.view, engine

    async def show(self, newest: Newest) -> None:
        """Let requests see the state that the Writer reports, which all groups have opened. The caller holds `lock`."""
        seen = newest.seen
        if seen.model != self.seen.model:  # the Writer belongs to a deployment that replaces this one
            return
        if seen.log < self.seen.log or seen.version < self.seen.version:  # the reader is ahead of the Writer
            return
        if seen.version == self.seen.version:
            self._show(replace(self.view, documents=newest.documents, seen=seen))
        else:
            opened, pins = await self._in(self._opened, seen.version, self.view)
            self._serve(opened, pins, newest)

    async def look(self) -> None:
        """Let requests see the newest version and change on storage. LostError if a shard group does not answer."""
        newest = (await self._in(versions, self.root))[-1]
        if newest > self.seen.version:
            try:
                await self.move(newest)
                self.refused = None
            except InputError as error:
                self.refused = str(error)
                log.warning("version %d is not served: %s", newest, error)
        async with self.lock:
            await self.catch_up()

    def _serve(self, opened: View, pins: contextlib.ExitStack, newest: Newest) -> None:
        self._pins.close()
        self._pins = pins
        if self._has_left:
            self._pins.close()
        self._show(replace(opened, documents=newest.documents, seen=newest.seen))
        if self._metrics is not None:
            self._metrics.serves(self.manifest.version)

    def _show(self, view: View) -> None:
        self.view = view
        if self._engine is not None:
            self._engine.view = view

    def _opened(self, number: int, view: View) -> tuple[View, contextlib.ExitStack]:
        """Open a version with the model and settings of a view. Returns the version's view, and pins against vacuum."""
        version = view.version.at(number)
        with contextlib.ExitStack() as pins:
            leaf_map = pins.enter_context(version.reading())
            is_same = leaf_map.manifest.revision == view.leaf_map.manifest.revision
            model = view.model if is_same else view.model.with_router(version.router(leaf_map))
            opened = View.of(version, leaf_map, model, view.groups, view.rules.limits, view.reranking)
            return opened, pins.pop_all()

    def _after(self, number: int) -> tuple[list[Change], str | None]:
        changes = list[Change]()
        try:
            for made in self.log.after(number):
                changes.append(made)
        except InputError as error:
            return changes, str(error)
        return changes, None

    async def _in(self, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def _ids(changes: Sequence[Change]) -> pa.Array:
    return pa.concat_arrays([made.ids for made in changes]).unique()


def _written(changes: Sequence[Change]) -> int:
    """Count the documents (or passages) that some changes wrote and that none of them removed again."""
    rows = last_rows(changes)
    return 0 if rows is None else int(pc.sum(pc.equal(rows["rank"], 0)).as_py() or 0)


class Following:
    """Keeps an ingress at the newest state that the Writer reports, or reads storage if the Writer is silent."""

    def __init__(self, follower: Follower, writer: "WriterHandle") -> None:
        """Follow while `run` runs. Until the Writer's first answer, each request reads storage."""
        self._follower, self._writer, self._name = follower, writer, uuid.uuid4().hex
        self._until = 0.0
        self._looks: Batches[None, None] = Batches(self._look, 1_000_000)

    @property
    def lost(self) -> list[str]:
        return [] if clock() < self._until else [WRITER]

    async def __call__(self) -> None:
        """Return once a request that begins now sees every change that was answered before."""
        if clock() >= self._until:
            await self._looks(None)

    async def run(self) -> None:
        while True:
            sent = clock()
            try:
                newest = await self._writer.newest(self._name, self._follower.seen)
                async with self._follower.lock:
                    await self._follower.show(newest)
                self._until = sent + SECONDS
                if self._follower.seen != newest.seen:  # the Writer has not seen yet what the ingress read from storage
                    await asyncio.sleep(BEHIND_SECONDS)
            except (LostError, ApiError):
                await asyncio.sleep(AGAIN_SECONDS)
            except Exception:
                log.exception("the state that the Writer reports cannot be served. Storage is read instead")
                await asyncio.sleep(AGAIN_SECONDS)

    async def _look(self, requests: Sequence[None]) -> list[None]:
        """Read storage once for all waiting requests. If reading fails, the requests see the state that is known."""
        try:
            await self._follower.look()
        except Exception as error:  # noqa: BLE001  searches go on
            log.warning("the newest state cannot be read from storage: %s: %s", type(error).__name__, error)
        return [None] * len(requests)


class Readers:
    """Readers of a Writer: servers that follow it. Notes the state that each shows to requests, and until when."""

    def __init__(self) -> None:
        """Let `see` wait at first for readers of an earlier Writer, who may answer without this Writer's changes."""
        self._earlier = clock() + SECONDS
        self._readers = dict[str, tuple[Seen, float]]()
        self._called = asyncio.Event()

    def called(self, name: str, seen: Seen) -> None:
        """Note the state that a reader, which has just called, shows to its requests."""
        now = clock()
        self._readers = {other: entry for other, entry in self._readers.items() if entry[1] > now}
        self._readers[name] = seen, now + SECONDS
        self._called.set()
        self._called = asyncio.Event()

    async def see(self, seen: Seen) -> None:
        """Wait until each reader answers from the state `seen` or a later state.

        A reader that has not called for `SECONDS` stops answering, and `see` does not wait for this reader.
        """
        while (until := self._late(seen)) > clock():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until - clock()):
                    await self._called.wait()

    def _late(self, state: Seen) -> float:
        """Return the time until which a reader may still answer from an older state than `state`."""
        late = [until for seen, until in self._readers.values() if seen.log < state.log or seen.version < state.version]
        return max([self._earlier, *late])
