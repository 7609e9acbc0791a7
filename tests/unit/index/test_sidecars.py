"""Columns that lie beside a leaf map's rows in files of their own, through every change of it."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.index import change
from rayhier.index.shards import sidecar
from rayhier.index.vacuum import vacuum
from rayhier.index.verify import verify
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError
from rayhier.storage import leaf_map, parquet
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
    found = {}
    for shard in there.manifest.shards:
        table = there.read(shard, ["doc_id", "rank", "scores"])
        for row in table.to_pylist():
            assert (row["scores"] is None) == (row["rank"] > 0)
            if row["rank"] == 0:
                found[row["doc_id"]] = row["scores"]
    return found


def wanted(there):
    return {name: value(name).tolist() for name, rank in content(there) if rank == 0}


def test_a_sidecar_is_a_file_of_its_own_with_checksum_and_maker(root):
    there = LeafMap.open(root)
    for shard in there.manifest.shards:
        (one,) = shard.sidecars.values()
        assert one.maker == "made by a test"
        assert one.file.name == shard.file.name.replace(".parquet", ".scores.parquet")
        assert one.file in there.manifest.files
        assert "scores" not in there.read(shard).column_names
        assert there.columns(shard)[-1] == "scores"
    assert scores(there) == wanted(there)
    assert len(scores(there)) == N
    # A range of leaves, and a column alone.
    shard = there.manifest.shards[0]
    leaves = range(shard.leaves[0] + 1, shard.leaves[-1])
    some, alone = there.read(shard, ["leaf", "doc_id", "rank", "scores"], leaves=leaves), there.read(shard, ["scores"])
    assert set(some["leaf"].to_pylist()) <= set(leaves)
    assert all(row["rank"] or row["scores"] == value(row["doc_id"]).tolist() for row in some.to_pylist())
    assert alone.column_names == ["scores"]
    assert alone.num_rows == shard.rows


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


def test_a_damaged_sidecar_is_named(root):
    there = LeafMap.open(root)
    shard = there.manifest.shards[1]
    name = shard.sidecars["scores"].file.name
    data = (root / name).read_bytes()
    middle = len(data) // 2
    for damaged in (data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], data[:-9], None):
        (root / name).unlink() if damaged is None else (root / name).write_bytes(damaged)
        for read in (lambda: verify(root), lambda: there.read(shard, ["scores"])):
            with pytest.raises(InputError, match=name):
                read()
    assert there.read(shard).num_rows == shard.rows


def test_a_first_row_without_a_value_is_found(root):
    there = LeafMap.open(root)
    shard = there.manifest.shards[0]
    values = there.read(shard, ["scores"])["scores"].to_pylist()
    values[next(row for row, one in enumerate(values) if one)] = None
    field = sidecar("scores", KIND, "made by a test")
    table = pa.table([pa.array(values, KIND)], schema=pa.schema([field]))
    file = parquet.write(root, "data/less.scores.parquet", [table], table.schema)
    less = shard.model_copy(update={"sidecars": {"scores": shard.sidecars["scores"].model_copy(update={"file": file})}})
    leaf_map.commit(root, lambda now: now.manifest.model_copy(update={"shards": [less, *now.manifest.shards[1:]]}))
    with pytest.raises(InputError, match=r"less\.scores\.parquet: a value is missing"):
        verify(root)
