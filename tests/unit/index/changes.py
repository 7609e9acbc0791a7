"""What the tests of changed leaf maps share: new documents, a compaction without Ray, and what a version holds."""

from rayhier.index.compact import replace_shards
from rayhier.index.gather import VersionRows
from rayhier.index.shards import write_shard
from rayhier.model.encoded import Encoded
from rayhier.storage import leaf_map
from rayhier.storage.leaf_map import LeafMap, ranges

from .conftest import M, documents, unit

FACTOR = 50.0


def batch(ids, seed=9):
    return [(documents(ids), Encoded.of(unit(seed, len(ids), M)))]


def compacted(root, shards=2):
    """Do what the Ray adapter does, without Ray."""
    base, made = gathered(root, shards)
    return leaf_map.commit(root, replace_shards(base.manifest, made))


def gathered(root, shards=2):
    """The newest version, and its rows in new shards."""
    base = LeafMap.open(root)
    made = []
    for first, last in ranges(base.manifest.counts, shards):
        leaves = range(first, last)
        tables = VersionRows(base).rows(leaves)
        name = f"data/compacted-{base.manifest.version:06d}-{first:05d}.parquet"
        made.append(write_shard(root, name, tables, leaves, base.manifest.counts, words=base.manifest.words))
    return base, made


def content(there):
    """Every row that counts, by id and rank; RuntimeError where one stands twice."""
    rows = {}
    for shard in there.manifest.shards:
        for row in there.read(shard).to_pylist():
            assert (row["doc_id"], row["rank"]) not in rows
            rows[row["doc_id"], row["rank"]] = row
    return rows


def vectors_of(there):
    return {name: tuple(row["vector"]) for (name, rank), row in content(there).items() if rank == 0}
