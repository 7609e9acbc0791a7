"""A leaf map of a benchmark's vectors, with the router that fills it, as benchmarks/search.py asks it."""

import os
import shutil
import time
from pathlib import Path

import numpy as np

from benchmarks import leaf_maps
from benchmarks.machine import set_threads
from benchmarks.search_peers import K, System, widths
from rayhier.arrays import Floats, Ints
from rayhier.model.encoded import Encoded
from rayhier.model.router import route_all
from rayhier.search.scan import LeafScan, RankedRows
from rayhier.spec.search import Codec

SHARDS = 4


class Ours:
    """A leaf map of the vectors and the router that fills it."""

    def __init__(self, vector_NM: Floats, leaves: int, folder: Path) -> None:
        began = time.monotonic()
        spec = leaf_maps.job("search", folder, branching=leaves)
        self.router = leaf_maps.settled(spec, vector_NM, len(vector_NM))
        texts = leaf_maps.texts([f"{row:09d}" for row in range(len(vector_NM))])
        self.there = leaf_maps.write(folder / "map", self.router, spec, texts, vector_NM, shards=SHARDS)
        self.cache = folder / "cache"
        os.environ["RAYHIER_CACHE"] = str(self.cache)
        self.seconds = time.monotonic() - began

    def open(self, codec: Codec) -> tuple[LeafScan, float, int]:
        """Its lists in a codec, the seconds they took, and their bytes with what they are scored again by."""
        shutil.rmtree(self.cache, ignore_errors=True)
        began = time.monotonic()
        leaves = LeafScan.mapped(self.there, codec)
        leaves.open()
        files = [path for path in self.cache.rglob("*") if path.suffix in {".faiss", ".npy"}]
        return leaves, time.monotonic() - began, sum(path.stat().st_size for path in files)

    def route(self, query_QM: Floats, beam: int) -> Ints:
        """Leaves [q, β] that queries visit."""
        return route_all(self.router, Encoded.of(query_QM), beam)[0].numpy()

    def system(self, codec: Codec) -> System:
        """Route, scan, count and score again: all that a server does but for reading what it shows of a document."""
        leaves, seconds, size = self.open(codec)
        begin_S = np.cumsum([0, *(shard.rows for shard in self.there.manifest.shards)])
        number_A = np.array(leaf_maps.rows(self.there)[0]).astype(np.int64)

        def search(query_QM: Floats, beam: int, threads: int) -> Ints:
            set_threads(threads)
            return numbered(leaves.candidates(query_QM, self.route(query_QM, beam), K).rows, begin_S, number_A)

        def visited(query_QM: Floats, beam: int) -> float:
            return float(leaves.candidates(query_QM, self.route(query_QM, beam), K).visited_Q.mean())

        efforts = widths(self.router.n_leaves)
        return System(f"rayhier, {codec}", self.seconds + seconds, size, efforts, search, visited)


def numbered(rows: RankedRows, begin_S: Ints, number_A: Ints) -> Ints:
    """Numbers [q, 10] of the best documents: one in two shards comes once."""
    found = np.full((len(rows.row_QT), K), -1)
    for query, (shard_T, row_T) in enumerate(zip(rows.segment_QT, rows.row_QT, strict=True)):
        best = dict.fromkeys(number_A[begin_S[shard_T] + row_T][shard_T >= 0].tolist())
        found[query, : min(K, len(best))] = list(best)[:K]
    return found
