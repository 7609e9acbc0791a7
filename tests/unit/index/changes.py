"""What the tests of changed leaf maps share: new documents, a compaction without Ray, and what a version holds."""

from rayhier.index.compact import compact_here
from rayhier.model.encoded import Encoded

from ...toys import job
from .conftest import M, documents, unit

FACTOR = 50.0


def batch(ids, seed=9):
    return [(documents(ids), Encoded(unit(seed, len(ids), M)))]


def compacted(root):
    return compact_here(job(index={"shards": 2}), root)


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
