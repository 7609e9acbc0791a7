"""A shard group: a range of an index's leaves, mapped into memory, which searches read.

Shapes: Q queries, M embedding size, B leaves probed (beam).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.search.codebook import multiply_adds
from rayhier.search.level_similarity import FlatQuery, LevelSimilarity
from rayhier.search.live import LiveReader, Seen
from rayhier.search.reader import Reader
from rayhier.search.retrieve import Coded, Flat, Reading, Scan
from rayhier.search.stored import Listing, Lookup
from rayhier.search.threads import single_thread
from rayhier.serve.backend.version import Version
from rayhier.serve.errors import LostError
from rayhier.serve.threads import SMALL
from rayhier.spec import InputError
from rayhier.storage.leaf_map import LeafMap

FAILURES = 2
"""Failures in a row after which a group opens its files again."""
PROBED = 16
"""Most shards of which `ping` searches a leaf."""
T = TypeVar("T")
log = logging.getLogger("ray.serve")


@dataclass
class _Opened:
    """A version's files in a range of leaves, opened."""

    version: Version
    there: LeafMap
    live: LiveReader
    rows_L: Ints
    """Rows of each leaf that the group holds; the last entry is for leaf -1, no leaf."""
    probed: Ints
    depth: int
    pins: contextlib.ExitStack

    @property
    def reader(self) -> Reader:
        """Reader of the leaf files."""
        return self.live.reader


class ShardGroup:
    """Searches a range of an index's leaves; InputError where a file is not as published.

    Several versions may be open at a time, each with its tail. Where work fails twice in a row, the group opens its
    newest version's files again; damaged files in the cache of this machine are then made again from the published
    ones.
    """

    def __init__(self, version: Version, leaves: range) -> None:
        faiss.omp_set_num_threads(1)
        self._range, self._failed = leaves, 0
        self._versions = dict[int, _Opened]()
        self._newest = self._opened(version)
        self._versions[version.number] = self._newest
        # One thread, so that a replica takes one core. Its loop stays free for health checks.
        self._thread = ThreadPoolExecutor(1, "scan", single_thread)
        self._documents = ThreadPoolExecutor(1, "documents", single_thread)

    def __del__(self) -> None:
        """Release the versions; called by Ray Serve when it stops the replica."""
        self.release()

    def release(self) -> None:
        """Release all versions, which vacuum may then remove."""
        for opened in self.__dict__.get("_versions", {}).values():
            opened.pins.close()

    async def read(self, work: Reading, seen: Seen | None = None) -> Any:
        """Do a piece of work, such as a scan, in the leaves of this group: of its first version, or of what is `seen`.

        Documents are read by their ids in a thread of their own, so that no search waits for them. InputError where an
        object of the log that is seen cannot be read.
        """
        opened = self._newest if seen is None else await self._at(seen)
        number = opened.live.tail.first if seen is None else seen.log
        if isinstance(work, Lookup | Listing):
            reading = asyncio.get_running_loop().run_in_executor(self._documents, opened.live.read, work, number)
            return await reading
        small = number == opened.live.tail.first and _is_small(opened, work)
        return await self._work(lambda: opened.live.read(work, number), small=small)

    async def open(self, number: int) -> int:
        """Open a newer version beside those that are open; returns the number of the log's last change in its tail."""
        if number not in self._versions:
            await asyncio.get_running_loop().run_in_executor(self._documents, self._open, number)
        return self._versions[number].live.tail.last

    async def close(self, number: int) -> None:
        """Release a version that no request reads any more; the newest stays."""
        if number in self._versions and self._versions[number] is not self._newest:
            self._versions.pop(number).pins.close()

    async def ping(self) -> None:
        """Search a leaf of each shard; raises an error, of any type, where files cannot be read or were changed."""
        await self._work(lambda: self._probe(self._newest))

    async def alive(self) -> None:
        """Return at once, even while a search runs, which shows that the replica's process lives."""

    async def check_health(self) -> None:
        """Open the files again where one was changed, as answers may be wrong; Ray Serve calls this regularly."""
        if not self._newest.reader.intact():
            await asyncio.get_running_loop().run_in_executor(self._thread, self._load_again)

    async def _at(self, seen: Seen) -> _Opened:
        """Return the version that is seen, with the log up to the change that is seen."""
        if seen.version not in self._versions:
            if seen.version < self._newest.version.number:
                raise InputError(f"version {seen.version}: was closed, as no request may read it any more")
            await self.open(seen.version)
        opened = self._versions[seen.version]
        if opened.live.tail.last < seen.log:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._documents, opened.live.follow, opened.there.root, seen.log)
        return opened

    def _open(self, number: int) -> None:
        if number not in self._versions:
            opened = self._opened(self._newest.version.at(number))
            with contextlib.suppress(InputError):  # of a damaged object is told where it is asked for
                opened.live.follow(opened.there.root)
            self._versions[number] = opened
            if number > self._newest.version.number:
                self._newest = opened

    def _opened(self, version: Version) -> _Opened:
        with contextlib.ExitStack() as pins:
            there = pins.enter_context(version.reading())
            spec, depth = version.now.spec, 0
            similarity: LevelSimilarity | None = None
            if spec.search.how == "level":
                model = version.model()
                similarity, depth = model.flat_similarity, model.tree.levels
            reader = Reader.open(spec, there, similarity, self._range)
            reader.open_files()
            rows_L = np.append(np.array(there.manifest.counts, dtype=np.int64), 0)
            rows_L[: self._range.start] = rows_L[self._range.stop :] = 0
            live, probed = LiveReader.open(reader, there), _some(there, self._range)
            return _Opened(version, there, live, rows_L, probed, depth, pins.pop_all())

    def _load_again(self) -> None:
        """Open the newest version's files anew, its tail kept."""
        before = self._newest
        after = self._opened(before.version)
        after.live = LiveReader(after.reader, before.live.tail)
        # Everything is open before any part is used: small scans do not wait for the thread that loads.
        self._versions[before.version.number] = self._newest = after
        before.pins.close()

    async def _work(self, work: Callable[[], T], *, small: bool = False) -> T:
        """Do work in the thread; small work at once, and where it fails again in the thread, which counts failures."""
        if small:
            with contextlib.suppress(Exception):
                done = work()
                self._failed = 0
                return done
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._counted, work)

    def _counted(self, work: Callable[[], T]) -> T:
        """Do work and count failures in a row."""
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

    def _probe(self, opened: _Opened) -> None:
        if not opened.reader.intact():
            raise OSError("files in the cache of this machine were changed while they were open")
        m, reader = opened.there.manifest.dimension, opened.reader
        query_QM = np.full((1, m), m**-0.5, np.float32)
        flat = reader.flat
        if flat is not None:
            again_QX = {"none": None, "vectors": query_QM, "level": _even(opened.depth)}[flat.similarity.again]
            reader.read(Flat(FlatQuery(_even(flat.similarity.level), again_QX), 1))
        elif reader.codes is not None:
            reader.read(Coded(query_QM, 1))
        else:
            reader.read(Scan(query_QM, opened.probed, 1))


def _is_small(opened: _Opened, work: Reading) -> bool:
    """Return True if work takes less time than a thread takes to wake."""
    if not isinstance(work, Scan | Coded) or work.where is not None or work.needs == "vectors":
        return False
    if isinstance(work, Coded):
        documents = 0 if opened.reader.codes is None else opened.reader.codes.documents
        return bool(len(work.query_QM) * multiply_adds(documents, work.query_QM.shape[1]) <= SMALL)
    return int(opened.rows_L[work.leaves_QB].sum() * work.query_QM.shape[1]) <= SMALL


class LocalShards:
    """A range of leaves, scanned in a thread of this process."""

    def __init__(self, name: str, version: Version, leaves: range) -> None:
        """Open a range of a version's leaves; InputError where a file is not as published."""
        self.name, self._group = name, ShardGroup(version, leaves)

    async def read(self, work: Reading, seen: Seen | None = None) -> Any:
        """Do a piece of a search's work, such as a scan, of what is seen; LostError where it fails."""
        try:
            return await self._group.read(work, seen)
        except Exception as error:
            log.warning("%s is lost: %s: %s", self.name, type(error).__name__, error)
            raise LostError(self.name) from error

    async def open(self, number: int) -> int:
        """Open a newer version too; returns the number of the log's last change in its tail."""
        return await self._group.open(number)

    async def close(self, number: int) -> None:
        """Release a version that no request reads any more."""
        await self._group.close(number)

    def release(self) -> None:
        """Release all versions, which vacuum may then remove; no request reads the group any more."""
        self._group.release()

    async def answers(self) -> bool:
        """Return True if the leaves answer a search now."""
        try:
            await self._group.ping()
        except Exception as error:  # noqa: BLE001  any failure means no answer
            log.warning("%s is lost: %s: %s", self.name, type(error).__name__, error)
            return False
        return True

    async def check_health(self) -> None:
        """Open files again where they were changed while open."""
        try:
            await self._group.check_health()
        except Exception as error:  # noqa: BLE001  tried again later; until then the group is lost
            log.warning("%s: cannot be opened anew: %s", self.name, error)


def _even(level: int) -> Floats:
    """Return the numbers [1, 2^level] of a text that is equally probable in every node of a level."""
    return np.full((1, 2**level), 2.0**-level, np.float32)


def _some(leaf_map: LeafMap, leaves: range) -> Ints:
    """Choose leaves [1, b] to check readiness by: the smallest leaf with rows of each shard, at most 16."""
    smallest, counts = [], leaf_map.manifest.counts
    for shard in leaf_map.manifest.shards:
        leaves_with_rows = [leaf for leaf in shard.leaves if leaf in leaves and counts[leaf]]
        smallest += [min(leaves_with_rows, key=lambda leaf: counts[leaf])] if leaves_with_rows else []
    return np.array([smallest[:PROBED]], dtype=np.int64).reshape(1, -1)
