"""A shard group: a range of an index's leaves, mapped into memory, which searches read.

Shapes: Q queries, M embedding size, B leaves probed (beam).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.dataset.ranking import Ranking
from rayhier.search.codebook import multiply_adds
from rayhier.search.hybrid import Lexical
from rayhier.search.level_similarity import FlatQuery, LevelSimilarity
from rayhier.search.reader import Reader
from rayhier.search.retrieve import Coded, Flat, Reading, Scan
from rayhier.search.shortlist import Shortlist
from rayhier.search.stored import Listing, Lookup
from rayhier.search.threads import single_thread
from rayhier.serve.backend.version import Version
from rayhier.serve.errors import LostError
from rayhier.serve.threads import SMALL
from rayhier.storage.leaf_map import LeafMap

FAILURES = 2
"""Failures in a row after which a group opens its files again."""
PROBED = 16
"""Most shards of which `ping` searches a leaf."""
T = TypeVar("T")
log = logging.getLogger("ray.serve")


class ShardGroup:
    """Searches a range of an index's leaves; InputError where a file is not as published.

    Where work fails twice in a row, the group opens its files again; damaged files in the cache of this machine are
    then made again from the published ones.
    """

    def __init__(self, version: Version, leaves: range) -> None:
        self._pins = contextlib.ExitStack()
        faiss.omp_set_num_threads(1)
        self._version, self._range, self._failed = version, leaves, 0
        self._there = self._pins.enter_context(version.reading())
        self._load()
        # One thread, so that a replica takes one core. Its loop stays free for health checks.
        self._thread = ThreadPoolExecutor(1, "scan", single_thread)
        self._documents = ThreadPoolExecutor(1, "documents", single_thread)

    def __del__(self) -> None:
        """Release the version, which vacuum may then remove; called by Ray Serve when it stops the replica."""
        self._pins.close()

    async def read(self, work: Reading) -> Ranking | Lexical | Shortlist | pa.Table:
        """Do a piece of work, such as a scan, in the leaves of this group.

        Documents are read by their ids in a thread of their own, so that no search waits for them.
        """
        if isinstance(work, Lookup | Listing):
            return await asyncio.get_running_loop().run_in_executor(self._documents, self._reader.read, work)
        return await self._work(lambda: self._reader.read(work), small=self._is_small(work))

    async def ping(self) -> None:
        """Search a leaf of each shard; raises an error, of any type, where files cannot be read or were changed."""
        await self._work(self._probe)

    async def alive(self) -> None:
        """Return at once, even while a search runs, which shows that the replica's process lives."""

    async def check_health(self) -> None:
        """Open the files again where one was changed, as answers may be wrong; Ray Serve calls this regularly."""
        if not self._reader.intact():
            await asyncio.get_running_loop().run_in_executor(self._thread, self._load)

    def _load(self) -> None:
        spec, depth = self._version.now.spec, 0
        similarity: LevelSimilarity | None = None
        if spec.search.how == "level":
            model = self._version.model()
            similarity, depth = model.flat_similarity, model.tree.levels
        reader = Reader.open(spec, self._there, similarity, self._range)
        reader.open_files()
        # Rows of each leaf that this group holds; the last entry is for leaf -1, no leaf.
        rows_L = np.append(np.array(self._there.manifest.counts, dtype=np.int64), 0)
        rows_L[: self._range.start] = rows_L[self._range.stop :] = 0
        # Everything is open before any part is used: small scans do not wait for the thread that loads.
        self._probed, self._rows_L = _some(self._there, self._range), rows_L
        self._reader, self._depth = reader, depth

    def _is_small(self, work: Reading) -> bool:
        """Return True if work takes less time than a thread takes to wake."""
        if not isinstance(work, Scan | Coded) or work.where is not None or work.needs == "vectors":
            return False
        if isinstance(work, Coded):
            documents = 0 if self._reader.codes is None else self._reader.codes.documents
            return bool(len(work.query_QM) * multiply_adds(documents, work.query_QM.shape[1]) <= SMALL)
        return int(self._rows_L[work.leaves_QB].sum() * work.query_QM.shape[1]) <= SMALL

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
                self._load()
                self._failed = 0
            raise
        self._failed = 0
        return done

    def _probe(self) -> None:
        if not self._reader.intact():
            raise OSError("files in the cache of this machine were changed while they were open")
        m = self._there.manifest.dimension
        query_QM = np.full((1, m), m**-0.5, np.float32)
        flat = self._reader.flat
        if flat is not None:
            again_QX = {"none": None, "vectors": query_QM, "level": _even(self._depth)}[flat.similarity.again]
            self._reader.read(Flat(FlatQuery(_even(flat.similarity.level), again_QX), 1))
        elif self._reader.codes is not None:
            self._reader.read(Coded(query_QM, 1))
        else:
            self._reader.read(Scan(query_QM, self._probed, 1))


class LocalShards:
    """A range of leaves, scanned in a thread of this process."""

    def __init__(self, name: str, version: Version, leaves: range) -> None:
        """Open a range of a version's leaves; InputError where a file is not as published."""
        self.name, self._group = name, ShardGroup(version, leaves)

    async def read(self, work: Reading) -> Any:
        """Do a piece of a search's work, such as a scan; LostError where it fails."""
        try:
            return await self._group.read(work)
        except Exception as error:
            log.warning("%s is lost: %s: %s", self.name, type(error).__name__, error)
            raise LostError(self.name) from error

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
