"""The deployment that scans: some of an index's leaves, mapped into memory.

Shapes: Q queries, M embedding size, B leaves probed (beam).
"""

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

from rayhier.cluster.library import faiss
from rayhier.search.answer import Partial
from rayhier.search.lists import Ints
from rayhier.search.opened import open_leaves
from rayhier.serve.pinned import Pinned
from rayhier.storage.columns import Floats


class ShardGroup:
    """A range of leaves; InputError where a file is not what was published."""

    def __init__(self, pinned: Pinned, leaves: range) -> None:
        self._held = contextlib.ExitStack()
        faiss.omp_set_num_threads(1)
        self._leaves = open_leaves(pinned.now.spec, self._held.enter_context(pinned.reading()), leaves)
        self._leaves.open()
        # One thread: faiss' lists take the beam as their state, and the replica's loop stays free for health checks.
        self._thread = ThreadPoolExecutor(1, "scan")

    def __del__(self) -> None:
        """What Serve calls when a replica is stopped: its version may be vacuumed at once."""
        self._held.close()

    async def search(self, query_QM: Floats, leaves_QB: Ints, k: int) -> list[Partial]:
        """The best k results of each query, as far as its leaves lie here."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._leaves.search, query_QM, leaves_QB, k
        )

    async def ping(self) -> None:
        """Returns: this replica has loaded its shards."""
