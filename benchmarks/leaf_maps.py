"""Leaf maps of vectors that lie in memory."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats, Ints
from rayhier.index.assign import Assigner, leaf_counts
from rayhier.index.shards import write_shard
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import Router
from rayhier.spec import JobSpec
from rayhier.spec.router import LearnedIvfRouting
from rayhier.storage import leaf_map, schemas
from rayhier.storage.leaf_map import LeafMap, Manifest, ranges
from rayhier.train.learned_ivf.kmeans_start import make_router, settle


def write(
    root: Path, router: Router, spec: JobSpec, documents: pa.Table, vector_NM: Floats, shards: int, model: str = "none"
) -> LeafMap:
    """Place documents by a router and publish them below `root` as the first version of a leaf map."""
    rows = Assigner(router, spec)(documents, Encoded.of(vector_NM))
    leaf_A = rows["leaf"].to_numpy()
    counts = leaf_counts(leaf_A, router.n_leaves)
    written = []
    for number, (first, last) in enumerate(ranges(counts, shards)):
        inside = rows.filter(pa.array((leaf_A >= first) & (leaf_A < last)))
        written.append(write_shard(root, f"data/shard-{number:05d}.parquet", [inside], range(first, last), counts))
    manifest = Manifest(
        version=1,
        parent=None,
        model=model,
        dimension=vector_NM.shape[1],
        metric="inner_product",
        vectors=spec.index.vectors,
        documents=len(vector_NM),
        leaves_per_document=spec.leaves_per_document,
        counts=counts,
        shards=written,
    )
    leaf_map.publish(root, manifest)
    return LeafMap.open(root)


def job(name: str, folder: Path, **router: object) -> JobSpec:
    """The shipped defaults over an encoder that changes nothing, with a router whose leaves k-means makes."""
    return JobSpec.model_validate(
        {
            "name": name,
            "workdir": str(folder),
            "corpus": {"type": "jsonl", "documents": "synthetic"},
            "encoder": {"model": "package:none", "train": "head"},
            "router": {"type": "learned_ivf", "rank": 0, **router},
            "cluster": {"address": "local", "index": {"workers": 2, "cpus": 1}},
        }
    )


def settled(spec: JobSpec, vector_NM: Floats, documents: int) -> LearnedIvfRouter:
    """The router of a job over so many documents, settled on their vectors or a sample; nothing teaches it."""
    routing, sampled = spec.router.over(documents), len(vector_NM) < documents
    assert isinstance(routing, LearnedIvfRouting)
    router = make_router(routing, vector_NM, 0, sampled=sampled)
    settle(router, vector_NM, spec, 0, sampled=sampled)
    return router


def texts(ids: Sequence[str], text: Sequence[str] | None = None) -> pa.Table:
    """Documents as an index takes them: without titles, and without texts where none are given."""
    none = [""] * len(ids)
    return pa.table([list(ids), none, none if text is None else list(text)], schema=schemas.DOCUMENTS)


def rows(there: LeafMap) -> tuple[list[str], Ints]:
    """Ids and leaves [a] of all rows, shard after shard."""
    read = [there.read(shard, ["doc_id", "leaf"], verify=False) for shard in there.manifest.shards]
    table = pa.concat_tables(read)
    return table["doc_id"].to_pylist(), table["leaf"].to_numpy().astype(np.int64)
