"""A leaf map of a benchmark's vectors, with the router that fills it, as benchmarks/search.py asks it."""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import leaf_maps
from benchmarks.machine import set_threads
from benchmarks.search_peers import K, System, widths
from rayhier.arrays import Floats, Ints
from rayhier.model.encoded import Encoded
from rayhier.model.router import route_all
from rayhier.search.scan import LeafScan, RankedRows
from rayhier.spec import JobSpec
from rayhier.spec.router import LearnedIvfRouting
from rayhier.spec.search import Codec
from rayhier.storage import schemas
from rayhier.train.learned_ivf.kmeans_start import make_router, settle

SHARDS = 4


class Ours:
    """A leaf map of the vectors and the router that fills it."""

    def __init__(self, vector_NM: Floats, leaves: int, folder: Path) -> None:
        began = time.monotonic()
        spec = JobSpec.model_validate(
            {
                "name": "search",
                "workdir": str(folder),
                "corpus": {"type": "jsonl", "documents": "none"},
                "encoder": {"model": "package:none", "train": "head"},
                "router": {"type": "learned_ivf", "branching": leaves, "rank": 0},
            }
        )
        own = spec.router.over(len(vector_NM))
        assert isinstance(own, LearnedIvfRouting)
        self.router = make_router(own, vector_NM, 0)
        settle(self.router, vector_NM, spec, 0)
        names = [f"{row:09d}" for row in range(len(vector_NM))]
        texts = pa.table([names, [""] * len(names), [""] * len(names)], schema=schemas.DOCUMENTS)
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
        number = [names.astype(np.int64) for names in leaf_maps.names(self.there)]

        def search(query_QM: Floats, beam: int, threads: int) -> Ints:
            set_threads(threads)
            return numbered(leaves.candidates(query_QM, self.route(query_QM, beam), K).rows, number)

        def visited(query_QM: Floats, beam: int) -> float:
            return float(leaves.candidates(query_QM, self.route(query_QM, beam), K).visited_Q.mean())

        efforts = widths(self.router.n_leaves)
        return System(f"rayhier, {codec}", self.seconds + seconds, size, efforts, search, visited)


def numbered(rows: RankedRows, number: Sequence[Ints]) -> Ints:
    """Numbers [q, 10] of the best documents: one in two shards comes once."""
    found = np.full((len(rows.row_QT), K), -1)
    for query, (shards, own) in enumerate(zip(rows.segment_QT.tolist(), rows.row_QT.tolist(), strict=True)):
        best = dict.fromkeys(int(number[shard][row]) for shard, row in zip(shards, own, strict=True) if shard >= 0)
        found[query, : min(K, len(best))] = list(best)[:K]
    return found
