"""The deployment that scans: some of an index's leaves, mapped into memory.

Shapes: Q queries, M embedding size, B leaves probed (beam).
"""

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.dataset.ranking import Ranking
from rayhier.search.comparing import LevelQuery
from rayhier.search.index import open_leaves, open_levels
from rayhier.search.shortlist import Shortlist
from rayhier.serve.version import Version
from rayhier.spec.filter import Filter


class ShardGroup:
    """Scans a range of leaves; InputError where a file is not as it was published."""

    def __init__(self, version: Version, leaves: range) -> None:
        self._pins = contextlib.ExitStack()
        faiss.omp_set_num_threads(1)
        there = self._pins.enter_context(version.reading())
        self._leaves = open_leaves(version.now.spec, there, leaves)
        self._leaves.open()
        by_level = version.now.spec.search.how == "level"
        self._levels = open_levels(version.model(), there, self._leaves) if by_level else None
        # One thread, so that a replica takes one core. Its loop stays free for health checks.
        self._thread = ThreadPoolExecutor(1, "scan")

    def __del__(self) -> None:
        """Called by Serve when it stops the replica: release the version, which vacuum may then remove."""
        self._pins.close()

    async def scan(self, query_QM: Floats, leaves_QB: Ints, k: int, wanted: Filter | None = None) -> Ranking:
        """The best k results of each query in those of its leaves that this group holds, and that match the filter."""
        given = query_QM, leaves_QB, k, wanted
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._leaves.scan, *given)

    async def level(self, query: LevelQuery, results: int, wanted: Filter | None = None) -> Shortlist:
        """The shortlist of each query in this group by a level of the tree; it holds `results` results."""
        if self._levels is None:
            raise ValueError("level: got a query for an index whose spec searches leaves")
        given = query, results, wanted
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._levels.shortlist, *given)

    async def ping(self) -> None:
        """Return at once; an answer means that this replica has loaded its shards."""
