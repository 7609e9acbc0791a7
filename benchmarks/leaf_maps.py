"""Leaf maps of vectors in memory."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats
from rayhier.index.assign import Assigner, leaf_sizes
from rayhier.index.shards import write_shard
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.opened_router import OpenedRouter
from rayhier.spec import JobSpec
from rayhier.spec.router import LearnedIvfRouting
from rayhier.storage import leaf_map, schemas
from rayhier.storage.leaf_map import LeafMap, Manifest, ranges
from rayhier.train.learned_ivf.kmeans_start import make_router, settle

AT_ONCE = 1 << 17
"""Documents that are placed at a time."""


def write(
    root: Path,
    router: OpenedRouter,
    spec: JobSpec,
    documents: pa.Table,
    vector_NM: Floats,
    shards: int,
    model: str = "none",
) -> LeafMap:
    """Place documents by a router and publish them below `root` as the first version of a leaf map.

    Vectors [n, m] may be mapped: no more than some of them, or those of a shard, are in memory.
    """
    assigner, counts, n = Assigner(router, spec), np.zeros(router.n_leaves, np.int64), len(vector_NM)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as folder:
        placed = []
        for begin in range(0, n, AT_ONCE):
            some = np.asarray(vector_NM[begin : begin + AT_ONCE], np.float32)
            rows = assigner(documents.slice(begin, AT_ONCE), Encoded(some))
            counts += leaf_sizes(rows, router.n_leaves)
            placed.append(Path(folder) / f"{begin}.arrow")
            with pa.OSFile(str(placed[-1]), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
        written = []
        for number, (first, last) in enumerate(ranges(counts.tolist(), shards)):
            inside = [_between(path, first, last) for path in placed]
            name = f"data/shard-{number:05d}.parquet"
            written.append(write_shard(root, name, inside, range(first, last), counts.tolist()))
    manifest = Manifest(
        version=1,
        parent=None,
        model=model,
        dimension=vector_NM.shape[1],
        metric="inner_product",
        vectors=spec.index.vectors,
        documents=n,
        leaves_per_document=spec.leaves_per_document,
        counts=counts.tolist(),
        shards=written,
    )
    leaf_map.publish(root, manifest)
    return LeafMap.open(root)


def _between(path: Path, first: int, last: int) -> pa.Table:
    """Rows of some leaves from a mapped file of rows in the order of leaves."""
    rows = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    begin, end = np.searchsorted(rows["leaf"].to_numpy(), [first, last]).tolist()
    return rows.slice(begin, end - begin)


def job(name: str, folder: Path, **router: object) -> JobSpec:
    """The shipped defaults over an encoder that changes nothing, with a router whose leaves k-means makes."""
    return JobSpec.model_validate(
        {
            "name": name,
            "workdir": str(folder),
            "corpus": {"type": "jsonl", "documents": "synthetic"},
            "encoder": {"model": "package:none", "train": "head"},
            "router": {"type": "learned_ivf", **router},
            "cluster": {"address": "local", "index": {"workers": 2, "cpus": 1}},
        }
    )


def settled(spec: JobSpec, vector_NM: Floats, documents: int) -> LearnedIvfRouter:
    """The router of a job over so many documents, settled on their vectors or a sample; nothing teaches it."""
    routing = spec.router.over(documents)
    assert isinstance(routing, LearnedIvfRouting)
    router = make_router(routing, vector_NM, 0)
    settle(router, vector_NM, spec, 0)
    return router


def texts(ids: Sequence[str]) -> pa.Table:
    """Documents as an index takes them, without titles and texts."""
    none = pa.repeat("", len(ids))
    return pa.table([pa.array(ids, pa.string()), none, none], schema=schemas.DOCUMENTS)
