"""A leaf map of a benchmark's vectors, with the router that fills it, as benchmarks/search.py asks it."""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from rayhier.index.assign import Assigner, leaf_counts
from rayhier.index.shards import ranges, write_shard
from rayhier.model.router import route_all
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.search import codecs
from rayhier.search.scan import LeafScan, Rows
from rayhier.arrays import Ints
from rayhier.spec import JobSpec
from rayhier.storage import leaf_map, schemas
from rayhier.arrays import Floats
from rayhier.storage.leaf_map import LeafMap, Manifest
from rayhier.train.learned_ivf.settle import make_router, settle
from search_peers import K, System, set_threads, widths

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
                "router": {"type": "ehi", "branching": leaves, "residual": "none"},
            }
        )
        self.router: LearnedIvfRouter = make_router(spec.router.over(len(vector_NM)), vector_NM, 0)
        settle(self.router, vector_NM, spec, 0)
        names = [f"{row:09d}" for row in range(len(vector_NM))]
        texts = pa.table([names, [""] * len(names), [""] * len(names)], schema=schemas.DOCUMENTS)
        table = Assigner(self.router, spec)(texts, vector_NM)
        counts = leaf_counts(table["leaf"].to_numpy(), self.router.n_leaves)
        root = folder / "map"
        shards = []
        for first, last in ranges(counts, SHARDS):
            inside = (table["leaf"].to_numpy() >= first) & (table["leaf"].to_numpy() < last)
            part = table.filter(pa.array(inside))
            shards.append(write_shard(root, f"data/{first}.parquet", [part], range(first, last), counts))
        manifest = Manifest(
            version=1,
            parent=None,
            model="none",
            dimension=vector_NM.shape[1],
            metric="inner_product",
            vectors="float16",
            documents=len(vector_NM),
            leaves_per_document=2,
            counts=counts,
            shards=shards,
        )
        leaf_map.publish(root, manifest)
        self.there, self.cache = LeafMap.open(root), folder / "cache"
        os.environ["RAYHIER_CACHE"] = str(self.cache)
        self.seconds = time.monotonic() - began

    def open(self, codec: codecs.Codec) -> tuple[LeafScan, float, int]:
        """Its lists in a codec, the seconds they took, and their bytes with what they are scored again by."""
        shutil.rmtree(self.cache, ignore_errors=True)
        began = time.monotonic()
        leaves = LeafScan(self.there, codec)
        leaves.open()
        files = [path for path in self.cache.rglob("*") if path.suffix in {".faiss", ".npy"}]
        return leaves, time.monotonic() - began, sum(path.stat().st_size for path in files)

    def route(self, query_QM: Floats, beam: int) -> Ints:
        """Leaves [q, β]."""
        return np.asarray(route_all(self.router, torch.from_numpy(query_QM), beam)[0].numpy())

    def system(self, codec: codecs.Codec) -> System:
        """Route, scan, count and score again: all that a server does but for reading what it shows of a document."""
        leaves, seconds, size = self.open(codec)
        number = [
            np.array(self.there.read(shard, ["doc_id"], verify=False)["doc_id"].to_pylist(), dtype=np.int64)
            for shard in self.there.manifest.shards
        ]

        def search(query_QM: Floats, beam: int, threads: int) -> Ints:
            set_threads(threads)
            return numbered(leaves.rows(query_QM, self.route(query_QM, beam), K), number)

        def visited(query_QM: Floats, beam: int) -> float:
            return float(leaves.rows(query_QM, self.route(query_QM, beam), K).visited_Q.mean())

        efforts = widths(self.router.n_leaves)
        return System(f"rayhier, {codec}", self.seconds + seconds, size, efforts, search, visited)


def numbered(rows: Rows, number: Sequence[Ints]) -> Ints:
    """Numbers [q, 10] of the best documents: one in two shards comes once."""
    found = np.full((len(rows.row_QT), K), -1)
    for query, (shards, own) in enumerate(zip(rows.shard_QT.tolist(), rows.row_QT.tolist(), strict=True)):
        best = dict.fromkeys(int(number[shard][row]) for shard, row in zip(shards, own, strict=True) if shard >= 0)
        found[query, : min(K, len(best))] = list(best)[:K]
    return found
