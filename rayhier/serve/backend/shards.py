"""A shard group: a range of an index's leaves, mapped into memory, which searches read.

Shapes: Q queries, M embedding size, B leaves probed (beam).
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
"""Failures in a row after which a group opens its files again."""
OLDER, SOON = 2, 5.0
"""Older versions that stay open for as long as a request may take, and the seconds for which further ones stay."""
T = TypeVar("T")
log = logging.getLogger("ray.serve")


class ShardGroup:
    """Searches a range of an index's leaves. InputError if a file is not as published.

    Several versions may be open at a time, each with its tail: those that requests name, and with `follows` the newest
    on storage. A version is closed if no request has named it for `seconds` since a newer version was opened. If
    version follows on version, all but the newest and two older ones are closed after five seconds.
    A request that takes longer than that opens its version again, which vacuum must have left. Where work
    fails twice in a row, the group opens its newest version's files again. Damaged files in the cache of this machine
    are then made again from the published ones.
    """

    def __init__(self, version: Version, leaves: range, seconds: float = 30.0, *, follows: bool = False) -> None:
        set_threads(1, libraries=False)
        self._range, self._failed, self._seconds, self._follows = leaves, 0, seconds, follows
        self._versions, self._named = dict[int, Snapshot](), dict[int, tuple[float, float]]()
        self._newer: asyncio.Task[None] | None = None
        self._version = Version.newest(version.workdir)[0] if follows else version
        self._newest = self._versions[self._version.number] = self._opened(self._version.number)
        # One thread, so that a replica takes one core. Its loop stays free for health checks.
        alone = partial(set_threads, 1, libraries=False)
        self._thread = ThreadPoolExecutor(1, "scan", alone)
        self._documents = ThreadPoolExecutor(1, "documents", alone)
        self._exact = ThreadPoolExecutor(1, "exact", alone)
        self._opening = ThreadPoolExecutor(1, "open", alone)

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Release all versions and their files, which vacuum may then remove. The group reads nothing any more."""
        for opened in self.__dict__.pop("_versions", {}).values():
            opened.close()
        self.__dict__.pop("_newest", None)

    async def read(self, work: Reading, seen: Seen) -> Any:
        """Do a piece of work, such as a scan, in the leaves of this group, of what is `seen`.

        Documents are read by their ids, and parts of exact searches done, in threads of their own, so that no search
        waits for them. Such a part comes with the seconds of CPU that it took. InputError if an object of the log
        that is seen cannot be read.
        """
        opened, number = await self._at(seen), seen.log
        if isinstance(work, Exact):
            return await run_in(self._exact, _timed, opened.read, work, number)
        if isinstance(work, Lookup | Listing):
            return await run_in(self._documents, opened.read, work, number)
        small = number == opened.manifest.log and _is_small(opened, work)
        return await self._work(lambda: opened.read(work, number), small=small)

    async def open(self, number: int) -> None:
        """Open a version too. InputError if it is not there or not as published, RuntimeError after `release`."""
        if "_versions" not in self.__dict__:
            raise RuntimeError("the group was released")
        if number not in self._versions:
            await run_in(self._opening, self._open, number)
        now = time.monotonic()
        self._named.setdefault(number, (now, now))  # so that older versions end even if no request comes

    async def ping(self) -> None:
        """Search a leaf of each shard. Raises an error, of any type, where files cannot be read or were changed."""
        await self._work(lambda: self._newest.probe())

    async def alive(self) -> None:
        """Return at once, even while a search runs, which shows that the replica's process lives."""

    async def check_health(self) -> None:
        """Open changed files again, and the newest version. Close unused ones. Ray Serve calls this regularly."""
        if not self._newest.intact():
            await run_in(self._thread, self._load_again)
        self._close_unnamed()
        if self._follows and (self._newer is None or self._newer.done()):
            self._newer = begin(self._open_newest())

    async def _at(self, seen: Seen) -> Snapshot:
        """Return what is seen, with its log. InputError if it is of another model than this group's."""
        model = self._newest.manifest.model
        if seen.model != model:
            raise InputError(f"version {seen.version}: got model {seen.model}; allowed: {model}, whose leaves are open")
        is_newer = seen.version > max(self._named, default=0)
        await self.open(seen.version)
        while seen.version not in self._versions:  # closed again, as a newer one was named before this went on
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
            with contextlib.suppress(InputError):  # of a damaged object is told where it is asked for
                opened.follow()
            self._versions[number] = opened
            if number > self._newest.manifest.version:
                self._newest = opened

    async def _open_newest(self) -> None:
        with contextlib.suppress(InputError, OSError):  # whoever names the version is told
            await self.open((await asyncio.to_thread(versions, self._newest.leaf_map.root))[-1])

    def _close_unnamed(self) -> None:
        """Release versions that no request has named for a while, since one named a newer version."""
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
        with contextlib.suppress(Exception):  # of what fails, the first search is told
            opened.probe()  # so that no request waits for what a first search computes
        return opened

    def _load_again(self) -> None:
        before = self._newest
        after = self._opened(before.manifest.version, before.tail)
        # Everything is open before any part is used: small scans do not wait for the thread that loads.
        self._versions[before.manifest.version] = after
        if self._newest is before:  # none newer was opened meanwhile
            self._newest = after
        before.close()

    async def _work(self, work: Callable[[], T], *, small: bool = False) -> T:
        """Do work in the thread. Small work is done at once, and again in the thread if it fails."""
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
                log.warning("leaves %s: failed %d times in a row, loading anew", self._range, self._failed)
                self._load_again()
                self._failed = 0
            raise
        self._failed = 0
        return done


def _timed(read: Callable[..., T], *arguments: Any) -> tuple[T, float]:
    """Return what a function returns, and the seconds of CPU that this thread took for it."""
    began = time.thread_time()
    return read(*arguments), time.thread_time() - began


def _is_small(opened: Snapshot, work: Reading) -> bool:
    """Return True if work takes less time than a thread takes to wake."""
    if not isinstance(work, Scan) or work.where is not None or work.needs == "vectors":
        return False
    return int(opened.row_counts[work.leaves_QB].sum() * work.query_QM.shape[1]) <= SMALL


class LocalShards(ShardGroup):
    """A shard group in this process: what fails is lost."""

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
        except Exception as error:  # noqa: BLE001  tried again later; until then the group is lost
            log.warning("%s: cannot be opened anew: %s", self.name, error)
