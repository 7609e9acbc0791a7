"""Columns that lie beside a leaf map's rows in files of their own, through every change of it."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.index import change
from rayhier.index.shards import sidecar
from rayhier.index.vacuum import vacuum
from rayhier.index.verify import verify
from rayhier.model.encoded import Encoded
from rayhier.storage.leaf_map import LeafMap

from .changes import FACTOR, batch, compacted, content
from .conftest import L, M, N, documents, unit

WIDTH = 3
KIND = pa.list_(pa.float16(), WIDTH)


def value(name):
    return np.array([len(name), sum(map(ord, name)) % 97, 0.5], dtype=np.float16)


def beside(assign):
    """What assigns documents, and gives each a column more, null but for its first row."""

    class Assign:
        router = assign.router

        def __call__(self, documents, encoded):
            table = assign(documents, encoded)
            rows = zip(table["doc_id"].to_pylist(), table["rank"].to_pylist(), strict=True)
            values = pa.array([None if rank else value(name) for name, rank in rows], KIND)
            return table.append_column(sidecar("scores", KIND, "made by a test"), values)

    return Assign()


@pytest.fixture
def root(folder, assign, write_map):
    ids = [f"d{n:03d}" for n in range(N)]
    write_map(folder, beside(assign)(documents(ids), Encoded(unit(0, N, M))), L, 3, leaves_per_document=2)
    return folder


def scores(there):
    """The value of every document, from the first rows."""
    shards = (there.read(shard, ["doc_id", "rank", "scores"]).to_pylist() for shard in there.manifest.shards)
    rows = [row for shard in shards for row in shard]
    assert all((row["scores"] is None) == (row["rank"] > 0) for row in rows)
    return {row["doc_id"]: row["scores"] for row in rows if row["rank"] == 0}


def wanted(there):
    return {name: value(name).tolist() for name, rank in content(there) if rank == 0}


def test_every_change_carries_sidecars(root, assign):
    own = beside(assign)
    change.add(root, own, batch([f"n{n}" for n in range(30)]), FACTOR)
    change.delete(root, ["d001", "n4"])
    before = change.upsert(root, own, batch(["d002"], 4), FACTOR)
    assert scores(before) == wanted(before)
    assert len(scores(before)) == N + 30 - 2
    after = compacted(root)
    assert scores(after) == scores(before)
    assert scores(change.rollback(root, 4)) == scores(before)
    after = change.rollback(root, 5)
    assert all(shard.sidecars["scores"].maker == "made by a test" for shard in after.manifest.shards)
    assert verify(root) == [1, 2, 3, 4, 5, 6, 7]
    assert vacuum(root).files == 3 * (3 + 2) + 2  # three shards, two additions, with sidecar and postings, two of ids
    assert scores(LeafMap.open(root)) == scores(after) == wanted(after)
    verify(root)
