"""Serves a shard group: a range of an index's leaves, mapped into memory, which searches read.

Shapes: Q queries, M embedding size, B leaves visited.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from rayhier.search.retrieve import Exact, Reading, Scan
from rayhier.search.segment.stored import Listing, Lookup
from rayhier.search.segment.tail import Tail
from rayhier.search.snapshot import Seen, Snapshot
from rayhier.serve.backend.version import ShardRange, Version
from rayhier.serve.errors import LostError
from rayhier.serve.threads import SMALL, begin, run_in
from rayhier.spec import InputError
from rayhier.storage.leaf_map import versions
from rayhier.threads import set_threads

FAILURES = 2
"""Failures in a row after which a shard group opens its files again."""
OLDER, SOON = 2, 5.0
"""OLDER: number of older versions that stay open for as long as a request may take.
SOON: seconds for which any further older version stays open."""
T = TypeVar("T")
log = logging.getLogger("ray.serve")


class ShardGroup:
    """Searches a range of an index's leaves. InputError if a file differs from the published one.

    Each version that requests name is open with its tail, and with `follows` the newest version on storage too. An
    older version is closed if no request has named it for `seconds`. If more than two older versions are open, the
    oldest are closed after five seconds. A request for a closed version opens the version again. If work fails
    twice in a row, the group opens its newest version's files again, which replaces damaged files in the cache.
    """

    def __init__(self, version: Version, leaves: range, seconds: float = 30.0, *, follows: bool = False) -> None:
        set_threads(1, libraries=False)
        self._range, self._failed, self._seconds, self._follows = leaves, 0, seconds, follows
        self._versions, self._named = dict[int, Snapshot](), dict[int, tuple[float, float]]()
        self._newer: asyncio.Task[None] | None = None
        self._version = Version.newest(version.workdir)[0] if follows else version
        self._newest = self._versions[self._version.number] = self._opened(self._version.number)
        # One thread, so that a replica uses one core. The event loop stays free for health checks.
        alone = partial(set_threads, 1, libraries=False)
        self._thread = ThreadPoolExecutor(1, "scan", alone)
        self._documents = ThreadPoolExecutor(1, "documents", alone)
        self._exact = ThreadPoolExecutor(1, "exact", alone)
        self._opening = ThreadPoolExecutor(1, "open", alone)

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Release all versions and their files, so that vacuum may remove them. The group reads nothing any more."""
        for opened in self.__dict__.pop("_versions", {}).values():
            opened.close()
        self.__dict__.pop("_newest", None)

    async def read(self, work: Reading, seen: Seen) -> Any:
        """Do a piece of work, such as a scan, in the leaves of this group, on the state `seen` of the index.

        Lookups of documents and parts of exact searches run in other threads, so that no search waits for them.
        An exact search also returns its seconds of CPU. InputError if a needed object of the log cannot be read.
        """
        opened, number = await self._at(seen), seen.log
        if isinstance(work, Exact):
            return await run_in(self._exact, _timed, opened.read, work, number)
        if isinstance(work, Lookup | Listing):
            return await run_in(self._documents, opened.read, work, number)
        small = number == opened.manifest.log and _is_small(opened, work)
        return await self._work(lambda: opened.read(work, number), small=small)

    async def open(self, number: int) -> None:
        """Open a further version. InputError if it is missing or damaged, RuntimeError after `release`."""
        if "_versions" not in self.__dict__:
            raise RuntimeError("the group was released")
        if number not in self._versions:
            await run_in(self._opening, self._open, number)
        now = time.monotonic()
        self._named.setdefault(number, (now, now))  # so that older versions are closed even without requests

    async def ping(self) -> None:
        """Search a leaf of each shard. Raises an error, of any type, if files cannot be read or were changed."""
        await self._work(lambda: self._newest.probe())

    async def alive(self) -> None:
        """Answer a health check at once, even while a search runs. The answer shows that the process lives."""

    async def check_health(self) -> None:
        """Open changed files again, and the newest version. Close unused versions. Ray Serve calls this regularly."""
        if not self._newest.intact():
            await run_in(self._thread, self._load_again)
        self._close_unnamed()
        if self._follows and (self._newer is None or self._newer.done()):
            self._newer = begin(self._open_newest())

    async def _at(self, seen: Seen) -> Snapshot:
        """Open the state `seen` of the index, with its log. InputError if its model is not this group's model."""
        model = self._newest.manifest.model
        if seen.model != model:
            raise InputError(f"version {seen.version}: got model {seen.model}; allowed: {model}, whose leaves are open")
        is_newer = seen.version > max(self._named, default=0)
        await self.open(seen.version)
        while seen.version not in self._versions:  # it was closed, because a request named a newer version meanwhile
            await self.open(seen.version)
        now = time.monotonic()
        self._named[seen.version] = self._named.get(seen.version, (now,))[0], now
        opened = self._versions[seen.version]
        if is_newer:
            self._close_unnamed()
        if opened.tail.last < seen.log:
            await run_in(self._documents, opened.follow, seen.log)
        return opened

    def _open(self, number: int) -> None:
        if number not in self._versions:
            opened = self._opened(number)
            with contextlib.suppress(InputError):  # a request that needs the damaged object gets the error
                opened.follow()
            self._versions[number] = opened
            if number > self._newest.manifest.version:
                self._newest = opened

    async def _open_newest(self) -> None:
        with contextlib.suppress(InputError, OSError):  # a request that names the version gets the error
            await self.open((await asyncio.to_thread(versions, self._newest.leaf_map.root))[-1])

    def _close_unnamed(self) -> None:
        """Release versions that no request has named for a while, since a request named a newer version."""
        newest, now = max(self._named, default=0), time.monotonic()
        older = sorted((number for number in list(self._versions) if number < newest), reverse=True)
        for place, number in enumerate(older):
            since = min(first for newer, (first, _) in self._named.items() if newer > number)
            last = self._named[number][1] if number in self._named else since
            if now - max(since, last) > (self._seconds if place < OLDER else min(SOON, self._seconds)):
                self._named.pop(number, None)
                self._opening.submit(self._versions.pop(number).close)  # freeing much memory takes a while

    def _opened(self, number: int, tail: Tail | None = None) -> Snapshot:
        version = self._version.at(number)
        with contextlib.ExitStack() as pins:
            there = pins.enter_context(version.reading())
            opened = Snapshot(version.now.spec, there, version.model, None, pins.pop_all(), self._range, tail)
        opened.open_files()
        with contextlib.suppress(Exception):  # the first search gets the error
            opened.probe()  # so that no request waits for the computations of a first search
        return opened

    def _load_again(self) -> None:
        before = self._newest
        after = self._opened(before.manifest.version, before.tail)
        # Everything is open before any part is used, because small scans do not wait for the thread that loads.
        self._versions[before.manifest.version] = after
        if self._newest is before:  # no newer version was opened meanwhile
            self._newest = after
        before.close()

    async def _work(self, work: Callable[[], T], *, small: bool = False) -> T:
        """Do work in the group's thread. Do small work in the event loop first, and in the thread if that fails."""
        if small:
            with contextlib.suppress(Exception):
                done = work()
                self._failed = 0
                return done
        return await run_in(self._thread, self._counted, work)

    def _counted(self, work: Callable[[], T]) -> T:
        try:
            done = work()
        except Exception:
            self._failed += 1
            if self._failed >= FAILURES:
                log.warning("leaves %s: failed %d times in a row, opening the files again", self._range, self._failed)
                self._load_again()
                self._failed = 0
            raise
        self._failed = 0
        return done


def _timed(read: Callable[..., T], *arguments: Any) -> tuple[T, float]:
    """Call `read`. Returns its value and the seconds of CPU that this thread took for the call."""
    began = time.thread_time()
    return read(*arguments), time.thread_time() - began


def _is_small(opened: Snapshot, work: Reading) -> bool:
    """Return True if a piece of a search's work takes less time than waking a thread."""
    if not isinstance(work, Scan) or work.where is not None or work.needs == "vectors":
        return False
    return int(opened.row_counts[work.leaves_QB].sum() * work.query_QM.shape[1]) <= SMALL


class LocalShards(ShardGroup):
    """A shard group in this process. Any failure is a LostError, as in a deployment."""

    def __init__(self, part: ShardRange, version: Version, seconds: float = 30.0) -> None:
        super().__init__(version, part.leaves, seconds)
        self.name = part.name

    async def read(self, work: Reading, seen: Seen) -> Any:
        try:
            return await super().read(work, seen)
        except Exception as error:
            log.warning("%s is lost: %s: %s", self.name, type(error).__name__, error)
            raise LostError(self.name) from error

    async def answers(self) -> bool:
        try:
            await self.ping()
        except Exception as error:  # noqa: BLE001  any failure means no answer
            log.warning("%s is lost: %s: %s", self.name, type(error).__name__, error)
            return False
        return True

    async def check_health(self) -> None:
        try:
            await super().check_health()
        except Exception as error:  # noqa: BLE001  tried again later, and until then the group is lost
            log.warning("%s: cannot be opened again: %s", self.name, error)
