"""Export an index to a file that plain faiss opens. Leaves become lists of an IVF, and leaves' means its quantizer."""

import contextlib
import errno
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats
from rayhier.cluster.library import faiss, ivf_tools
from rayhier.spec import InputError
from rayhier.spec.index import BYTES
from rayhier.storage import columns, files, parquet
from rayhier.storage.leaf_map import LeafMap

ROWS = ".rows.parquet"
"""Ending of the name of the file that has the document, leaf and rank of each faiss id."""
ASKED, NEAREST = 100, 10


@dataclass(frozen=True)
class Export:
    rows: int
    lists: int
    bytes: int
    recall: float
    """Share of the ten nearest rows that plain faiss finds with `probes` lists, for a sample of stored vectors."""


def export(leaf_map: LeafMap, path: Path, probes: int) -> Export:
    """Write all rows as a faiss IVF by inner product to `path`, and a table of the rows to `PATH.rows.parquet`.

    Vectors keep their stored format. A row's number is the faiss id. A document in two leaves has two rows. InputError
    if memory is too small for the file.
    """
    manifest = leaf_map.manifest
    m, leaves = manifest.dimension, len(manifest.counts)
    needed, free = manifest.rows * m * BYTES[manifest.vectors], available()
    if needed > free:
        raise InputError(
            f"export: needs {needed >> 20:,} MiB of memory, but {free >> 20:,} MiB are free. Use a larger machine"
        )
    quantizer = faiss.IndexFlatIP(m)
    index: Any = faiss.IndexIVFFlat(quantizer, m, leaves, faiss.METRIC_INNER_PRODUCT)
    if manifest.vectors == "float16":
        kind = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexIVFScalarQuantizer(quantizer, m, leaves, kind, faiss.METRIC_INNER_PRODUCT, False)
    index.is_trained = True
    sum_LM, begin = np.zeros((leaves, m)), 0
    sampled: list[Floats] = []
    for shard in manifest.shards:
        table = leaf_map.read(shard, ["leaf", "vector"])
        vector_NM, leaf_N = columns.matrix(table["vector"]), table["leaf"].to_numpy().astype(np.int64)
        ids = np.arange(begin, begin + len(leaf_N))
        if len(ids):
            np.add.at(sum_LM, leaf_N, vector_NM)
            sampled.append(vector_NM[:: -(-len(vector_NM) // ASKED)].copy())
            ivf_tools.add_preassigned(index, np.ascontiguousarray(vector_NM), leaf_N, ids)
        begin += len(leaf_N)
    mean_LM = sum_LM / np.maximum(np.linalg.norm(sum_LM, axis=1, keepdims=True), 1e-12)
    quantizer.add(mean_LM.astype(np.float32))
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = _rows(leaf_map)
    first = next(tables)
    parquet.write(path.parent, path.name + ROWS, itertools.chain([first], tables), first.schema)
    files.write(path, lambda temporary: _write(index, temporary))
    sample = np.concatenate([np.empty((0, m), np.float32), *sampled])
    return Export(begin, leaves, path.stat().st_size, _recall(index, sample[:: max(1, len(sample) // ASKED)], probes))


def _write(index: Any, path: Path) -> None:
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:  # faiss' message has the place in its sources before the cause
        cause = str(error).rpartition("failed: ")[2]
        raise OSError(errno.EIO, f"cannot be written ({cause}). Is there space left?", str(path)) from None


def _rows(leaf_map: LeafMap) -> Iterator[pa.Table]:
    """Yield number, document, leaf and rank of each row, and its values in sidecars, shard by shard."""
    begin = 0
    for shard in leaf_map.manifest.shards:
        names = ["leaf", "rank", *shard.sidecars]
        table = columns.as_lists(leaf_map.read(shard, [leaf_map.key(shard), *names]))
        row = pa.array(np.arange(begin, begin + table.num_rows))
        yield table.rename_columns(["id", *names]).add_column(0, "row", row)
        begin += table.num_rows


def _recall(index: Any, query_QM: Floats, probes: int) -> float:
    """Measure recall at `probes` lists against a scan of every list. Returns 1 for an empty index."""
    if not len(query_QM):
        return 1.0

    def nearest(lists: int) -> np.ndarray:
        index.nprobe = min(lists, index.nlist)
        return np.asarray(index.search(query_QM, NEAREST)[1])

    exact_QK = nearest(index.nlist)
    hit_QK = (nearest(probes)[:, :, None] == exact_QK[:, None, :]).any(axis=1) & (exact_QK >= 0)
    return float(hit_QK.sum() / (exact_QK >= 0).sum())


def available() -> int:
    """Return the bytes of free memory, including file caches that the system can release."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
