"""The deployment that scans: some of an index's leaves, mapped into memory.

Shapes: Q queries, M embedding size, B leaves probed (beam).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.dataset.ranking import Ranking
from rayhier.search.hybrid import Lexical, WordScan
from rayhier.search.index import open_leaves, open_levels
from rayhier.search.level_similarity import LevelQuery
from rayhier.search.shortlist import Shortlist
from rayhier.serve.threads import SMALL
from rayhier.serve.version import Version
from rayhier.spec.filter import Filter
from rayhier.storage.leaf_map import LeafMap

FAILURES = 2
"""Failures in a row after which a group loads anew."""
PROBED = 16
"""Files of which readiness searches a leaf, at most."""
T = TypeVar("T")
log = logging.getLogger("ray.serve")


class ShardGroup:
    """Scans a range of leaves; InputError where a file is not as it was published.

    Where its work fails twice in a row it opens its files anew; what was damaged in the cache of this machine is then
    made again from what was published.
    """

    def __init__(self, version: Version, leaves: range) -> None:
        self._pins = contextlib.ExitStack()
        faiss.omp_set_num_threads(1)
        self._version, self._range, self._failed = version, leaves, 0
        self._there = self._pins.enter_context(version.reading())
        self._load()
        # One thread, so that a replica takes one core. Its loop stays free for health checks.
        self._thread = ThreadPoolExecutor(1, "scan")

    def __del__(self) -> None:
        """Called by Serve when it stops the replica: release the version, which vacuum may then remove."""
        self._pins.close()

    async def scan(
        self, query_QM: Floats, leaves_QB: Ints, k: int, where: Filter | None = None, *, with_vectors: bool = False
    ) -> Ranking:
        """The best k results of each query in those of its leaves that this group holds, and that match the filter."""
        small = where is None and not with_vectors and self._products(query_QM, leaves_QB) <= SMALL
        return await self._work(
            lambda: self._leaves.scan(query_QM, leaves_QB, k, where, with_vectors=with_vectors), small=small
        )

    async def level(
        self, query: LevelQuery, results: int, where: Filter | None = None, *, with_vectors: bool = False
    ) -> Shortlist:
        """The shortlist of each query in this group by a level of the tree; it holds `results` results."""
        return await self._work(lambda: self._shortlist(query, results, where, with_vectors=with_vectors))

    async def words(
        self, texts: Sequence[str], query_QM: Floats, k: int, where: Filter | None = None, *, with_vectors: bool = False
    ) -> Lexical:
        """The best k results of each query by BM25 over the documents whose first leaf this group holds."""
        return await self._work(lambda: self._lexical(texts, query_QM, k, where, with_vectors=with_vectors))

    async def ping(self) -> None:
        """Search once; an answer means that this replica finds what is in its files, and that nobody changed them."""
        await self._work(self._probe)

    async def alive(self) -> None:
        """Return at once, whatever is at work."""

    async def check_health(self) -> None:
        """Called by Serve every ten seconds: load anew where a mapped file was changed, else answers may be wrong."""
        if not self._intact():
            await asyncio.get_running_loop().run_in_executor(self._thread, self._load)

    def _load(self) -> None:
        spec = self._version.now.spec
        leaves = open_leaves(spec, self._there, self._range)
        leaves.open()
        words = WordScan(leaves) if spec.search.words else None
        levels, depth = None, 0
        if spec.search.how == "level":
            model = self._version.model()
            levels, depth = open_levels(model, self._there, leaves), model.tree.levels
        # Rows of each leaf that this group holds; the last is none's, -1.
        rows_L = np.append(np.array(self._there.manifest.counts, dtype=np.int64), 0)
        rows_L[: self._range.start] = rows_L[self._range.stop :] = 0
        # All is open before any of it is used: small scans do not wait for the thread that loads.
        self._probed, self._rows_L = _some(self._there, self._range), rows_L
        self._leaves, self._words, self._levels, self._depth = leaves, words, levels, depth

    def _products(self, query_QM: Floats, leaves_QB: Ints) -> int:
        """Products of numbers that a scan takes."""
        return int(self._rows_L[leaves_QB].sum() * query_QM.shape[1])

    def _intact(self) -> bool:
        return self._leaves.intact() if self._levels is None else self._levels.intact()

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

    def _shortlist(self, query: LevelQuery, results: int, where: Filter | None, *, with_vectors: bool) -> Shortlist:
        if self._levels is None:
            raise ValueError("level: got a query for an index whose spec searches leaves")
        return self._levels.shortlist(query, results, where, with_vectors=with_vectors)

    def _lexical(
        self, texts: Sequence[str], query_QM: Floats, k: int, where: Filter | None, *, with_vectors: bool
    ) -> Lexical:
        if self._words is None:
            raise ValueError("words: got a query for an index whose spec has no BM25")
        return self._words.scan(texts, query_QM, k, where, with_vectors=with_vectors)

    def _probe(self) -> None:
        if not self._intact():
            raise OSError("files in the cache of this machine were changed while they were open")
        m = self._there.manifest.dimension
        query_QM = np.full((1, m), m**-0.5, np.float32)
        if self._levels is None:
            self._leaves.scan(query_QM, self._probed, 1)
        else:
            similarity = self._levels.similarity
            again_QX = {"none": None, "vectors": query_QM, "level": _even(self._depth)}[similarity.again]
            self._levels.shortlist(LevelQuery(_even(similarity.level), again_QX), 1)


def _even(level: int) -> Floats:
    """Numbers [1, 2^h] of a text that is as probable in every node of a level."""
    return np.full((1, 2**level), 2.0**-level, np.float32)


def _some(there: LeafMap, leaves: range) -> Ints:
    """A leaf [1, b] of each file of a range of leaves, the smallest that holds rows; of the first files only."""
    found = []
    for shard in there.manifest.shards:
        own = [leaf for leaf in shard.leaves if leaf in leaves and there.manifest.counts[leaf]]
        found += [min(own, key=lambda leaf: there.manifest.counts[leaf])] if own else []
    return np.array([found[:PROBED]], dtype=np.int64).reshape(1, -1)
