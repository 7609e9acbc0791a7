"""Leaf maps of vectors that lie in memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats
from rayhier.index.assign import Assigner, leaf_counts
from rayhier.index.shards import ranges, write_shard
from rayhier.model.encoded import Encoded
from rayhier.model.router import Router
from rayhier.spec import JobSpec
from rayhier.storage import leaf_map
from rayhier.storage.leaf_map import LeafMap, Manifest


def write(root: Path, router: Router, spec: JobSpec, documents: pa.Table, vector_NM: Floats, shards: int) -> LeafMap:
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
        model="none",
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


def names(there: LeafMap) -> list[np.ndarray]:
    """Ids of the documents, by shard and row."""
    return [
        np.array(there.read(shard, ["doc_id"], verify=False)["doc_id"].to_pylist(), dtype=object)
        for shard in there.manifest.shards
    ]
