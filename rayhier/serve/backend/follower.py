"""Keeps the view of an engine new: which version of an index, and which change of its log, requests read.

The Writer's own engine and those of ingresses follow the index alike. The Writer reads the log where another process
may have written. An ingress shows what the Writer tells it, or reads storage itself if the Writer is silent.

A change is answered once each reader (a server that follows the Writer) sees it, or may answer requests no more. A
reader asks the Writer again and again for what is new, and each time says what its requests see. For `SECONDS` after it
sent such a call it answers requests at once, by what it then knows. The Writer counts the same time from the arrival of
the call, which is later: no two clocks are compared. A reader whose time is over reads storage before each request, and
requests that begin meanwhile share the next look.
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
"""Seconds for which a reader may answer requests after it sent a call that was answered."""
HELD_SECONDS = 0.5
"""Seconds after which the Writer answers a reader's call where nothing is new."""
BEHIND_SECONDS = 0.1
"""Seconds between two calls of a Writer that has not seen yet what was read from storage."""
AGAIN_SECONDS = 0.2
"""Seconds between two calls to a Writer that does not answer."""
WRITER = "writer"
"""Name of the Writer's deployment."""
log = logging.getLogger("ray.serve")


@dataclass(frozen=True)
class Newest:
    """The newest state of an index that requests may see, or the state that a rollback made."""

    seen: Seen
    documents: int


@dataclass(frozen=True)
class TailSize:
    """What the log's tail holds: documents and bytes of the changes that no leaf file holds."""

    documents: int
    bytes: int
    oldest: float
    """Time, by `time.monotonic`, since when requests see the oldest change, or now if there is none."""


class Follower:
    """Replaces an engine's view whenever the index changes. Whoever changes the view holds `lock`."""

    def __init__(
        self, view: View, groups: Sequence[Shards], metrics: Metrics | None, pins: contextlib.ExitStack
    ) -> None:
        """Follow the version that a view has opened; `pins` keep it from vacuum until another is served."""
        self.root, self.view = view.leaf_map.root, view
        self._engine: Engine | None = None
        self.log, self.lock = ChangeLog(self.root), asyncio.Lock()
        self.damage: str | None = None
        """Message that names the first change of the log that cannot be read. None: all can be read."""
        self.refused: str | None = None
        """Why the newest version is not served. None: it is, as far as is known."""
        self.applied: Callable[[Change], None] = lambda _: None
        """Function that is called with each change that requests see from then on."""
        self._groups, self._metrics = list(groups), metrics
        self._pins, self._has_left = pins, False
        self._tail = deque[tuple[int, int, int, float]]()
        self._thread = ThreadPoolExecutor(1, "follow")

    def close(self) -> None:
        """Release the version that is seen, which vacuum may then remove."""
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
        """Version and change of the log that a request reads which begins now."""
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
        """Let requests see the opened version's tail. InputError if it can have none."""
        manifest = self.manifest
        changes, self.damage = self._after(manifest.log)
        if changes and self.spec.search.how == "level":
            raise InputError(
                f"{self.root}: its change log has a tail, which search.how level does not read; allowed: rayhier index "
                "fold WORKDIR first"
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
        """Let requests see the next change, of whose documents some, or their passages, were `there`."""
        documents = self.newest.documents + _written([made]) - there.total()
        seen = replace(self.seen, log=made.number)
        self._show(replace(self.view, documents=documents, seen=seen))
        self._count(made)
        self.applied(made)

    async def catch_up(self) -> None:
        """Let requests see later changes, up to a damaged object. LostError if a shard group does not answer."""
        changes, self.damage = await self._in(self._after, self.seen.log)
        for made in changes:
            self.apply(made, await self.view.present(made.ids.to_pylist(), self.seen))

    async def open(self, number: int) -> None:
        await asyncio.gather(*(group.open(number) for group in self._groups))

    async def move(self, number: int) -> None:
        """Let requests see a newer version, once all groups have opened it. LostError if one does not answer."""
        while True:
            groups, view = self._groups, self.view
            await self.open(number)
            opened, pins = await self._in(self._opened, number, view)
            async with self.lock:
                with pins:
                    if number < self.seen.version:
                        return
                    if groups is self._groups:  # else the index was opened with another spec meanwhile
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
        """Let requests see the index as it was opened anew, with another spec: its model, groups and rules."""
        async with self.lock:
            number = self.seen.version
            await asyncio.gather(*(group.open(number) for group in groups))
            opened, pins = await self._in(self._opened, number, view)
            self._groups = list(groups)
            self._serve(opened, pins, self.newest)

    def leave(self) -> None:
        """Let the engine's requests see nothing more of the index, whose place another takes; releases its version."""
        self._engine, self._metrics, self._has_left = None, None, True
        self.close()

    def show_to(self, engine: Engine) -> None:
        """Let requests of an engine see the index from now on."""
        engine.view, self._engine = self.view, engine

    async def show(self, newest: Newest) -> None:
        """Let requests see what the Writer says, whose groups have opened it. The caller holds the lock."""
        seen = newest.seen
        if seen.model != self.seen.model:  # of an application that is deployed in this one's place
            return
        if seen.log < self.seen.log or seen.version < self.seen.version:  # the Writer has yet to see what was read here
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
        """Open what an engine needs of a version, by the model and settings of a view."""
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
    """Count the documents (of passages: passages) that changes, in their order, leave in the index."""
    rows = last_rows(changes)
    return 0 if rows is None else int(pc.sum(pc.equal(rows["rank"], 0)).as_py() or 0)


class Following:
    """Keeps what an ingress's requests see at what the Writer says, or at what storage says if the Writer is silent."""

    def __init__(self, follower: Follower, writer: "WriterHandle") -> None:
        """Follow once `run` runs. Until the Writer has answered, storage counts."""
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
                if self._follower.seen != newest.seen:  # the Writer has yet to see what was read here from storage
                    await asyncio.sleep(BEHIND_SECONDS)
            except (LostError, ApiError):
                await asyncio.sleep(AGAIN_SECONDS)
            except Exception:
                log.exception("what the Writer says cannot be served; storage is read instead")
                await asyncio.sleep(AGAIN_SECONDS)

    async def _look(self, requests: Sequence[None]) -> list[None]:
        """Look at storage, once for all requests; where that fails, they see what is known."""
        try:
            await self._follower.look()
        except Exception as error:  # noqa: BLE001  searches go on
            log.warning("storage does not say what is newest: %s: %s", type(error).__name__, error)
        return [None] * len(requests)


class Readers:
    """The readers of a Writer: what the requests of each see, and until when it may answer them by that."""

    def __init__(self) -> None:
        """Begin as a Writer begins: readers of an earlier one may still answer, and see nothing of this one."""
        self._earlier = clock() + SECONDS
        self._readers = dict[str, tuple[Seen, float]]()
        self._called = asyncio.Event()

    def called(self, name: str, seen: Seen) -> None:
        """Note what the requests of a reader see, which has just called."""
        now = clock()
        self._readers = {other: entry for other, entry in self._readers.items() if entry[1] > now}
        self._readers[name] = seen, now + SECONDS
        self._called.set()
        self._called = asyncio.Event()

    async def see(self, seen: Seen) -> None:
        """Return once the requests of every reader see a state of the index, or it may answer no more."""
        while (until := self._late(seen)) > clock():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until - clock()):
                    await self._called.wait()

    def _late(self, state: Seen) -> float:
        """Return until when a reader may answer whose requests do not see a state of the index."""
        late = [until for seen, until in self._readers.values() if seen.log < state.log or seen.version < state.version]
        return max([self._earlier, *late])
