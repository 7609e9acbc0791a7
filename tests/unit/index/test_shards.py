"""Leaf ranges and shards: every leaf in one range, every row once, no row group ends inside a leaf."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayhier.index import shards
from rayhier.index.shards import GROUP_ROWS, row_groups, write_shard
from rayhier.storage import files, schemas
from rayhier.storage.leaf_map import ranges

COUNTS = st.lists(st.integers(0, 20) | st.just(0), min_size=1, max_size=30)
M = 2


@given(COUNTS, st.integers(1, 40))
def test_ranges_are_contiguous_and_cover_every_leaf(counts, wanted):
    found = ranges(counts, wanted)
    assert [leaf for first, last in found for leaf in range(first, last)] == list(range(len(counts)))
    assert all(first < last for first, last in found)
    assert len(found) == min(wanted, len(counts))


@given(COUNTS, st.integers(1, 40))
def test_a_shard_exceeds_its_share_by_one_leaf_at_most(counts, wanted):
    found = ranges(counts, wanted)
    share = sum(counts) / len(found)
    assert max(sum(counts[first:last]) for first, last in found) <= share + max(counts)


def rows(leaf_N, ids):
    schema = schemas.leaf_map(M, "float16")
    n = len(leaf_N)
    return pa.table(
        [
            list(ids),
            pa.array(leaf_N, pa.int32()),
            pa.array([0] * n, pa.int8()),
            pa.array([[int(leaf)] for leaf in leaf_N], pa.list_(pa.int32())),
            pa.array([-0.5] * n, pa.float32()),
            columns_of(n),
            [""] * n,
            [f"text {name}" for name in ids],
        ],
        schema=schema,
    )


def columns_of(n):
    flat = pa.array(np.arange(n * M, dtype=np.float16))
    return pa.FixedSizeListArray.from_arrays(flat, M)


@pytest.fixture
def parts(tmp_path):
    """Three routed parts, sorted by leaf: 60 documents in leaves 0 to 9, none in leaf 4 or 9."""
    leaf_N = np.random.default_rng(0).choice([0, 1, 2, 3, 5, 6, 7, 8], 60)
    made = []
    for number in range(3):
        own = np.arange(number * 20, number * 20 + 20)
        table = rows(leaf_N[own], [f"d{row:02d}" for row in own]).sort_by([("leaf", "ascending")])
        files.write_parquet(tmp_path / "routed", f"{number}.parquet", [table], table.schema)
        made.append(tmp_path / "routed" / f"{number}.parquet")
    return made, leaf_N, np.bincount(leaf_N, minlength=10).tolist()


def read(paths, first, last):
    """Rows of leaves [first, last), part by part."""
    wanted = [("leaf", ">=", first), ("leaf", "<", last)]
    return [files.read_table(path, filters=wanted) for path in paths]


def test_every_document_is_in_one_shard_once(tmp_path, parts):
    paths, leaf_N, counts = parts
    found = []
    for number, (first, last) in enumerate(ranges(counts, 4)):
        shard = write_shard(tmp_path, f"data/{number}.parquet", read(paths, first, last), range(first, last), counts)
        table = pq.read_table(tmp_path / shard.file.name)
        assert shard.file == files.describe(tmp_path, f"data/{number}.parquet")
        assert (shard.rows, shard.documents) == (table.num_rows, table.num_rows)
        assert shard.leaves == [leaf for leaf in range(first, last) if counts[leaf]]
        assert np.diff(shard.offsets).tolist() == [counts[leaf] for leaf in shard.leaves]
        keys = list(zip(table["leaf"].to_pylist(), table["doc_id"].to_pylist(), strict=True))
        assert keys == sorted(keys)
        for place, leaf in enumerate(shard.leaves):
            begin, end = shard.offsets[place : place + 2]
            assert set(table["leaf"].to_pylist()[begin:end]) <= {leaf}
        found += keys
    assert sorted(name for _, name in found) == [f"d{row:02d}" for row in range(60)]
    assert all(leaf == leaf_N[int(name[1:])] for leaf, name in found)


def test_a_row_keeps_its_columns(tmp_path, parts):
    paths, _, counts = parts
    write_shard(tmp_path, "all.parquet", read(paths, 0, 10), range(10), counts)
    made = pq.read_table(tmp_path / "all.parquet").sort_by("doc_id")
    assert made.equals(pa.concat_tables([pq.read_table(path) for path in paths]).sort_by("doc_id"))


def test_a_shard_of_empty_leaves(tmp_path, parts):
    paths, _, counts = parts
    shard = write_shard(tmp_path, "empty.parquet", read(paths, 4, 5), range(4, 5), counts)
    assert (shard.rows, shard.leaves, shard.offsets) == (0, [], [0])
    assert pq.read_table(tmp_path / "empty.parquet").schema.equals(schemas.leaf_map(M, "float16"))


@pytest.mark.parametrize("change", [1, -1])
def test_a_miscount_is_refused(tmp_path, parts, change):
    paths, _, counts = parts
    counts[2] += change
    with pytest.raises(RuntimeError, match="leaves 0 to 4 do not hold the rows counted for them"):
        write_shard(tmp_path, "data/0.parquet", read(paths, 0, 5), range(5), counts)
    assert not (tmp_path / "data").exists()


@given(st.lists(st.integers(0, 2 * GROUP_ROWS) | st.integers(0, 20), min_size=1, max_size=12))
def test_no_row_group_ends_inside_a_leaf(counts):
    leaf_N = np.repeat(np.arange(len(counts)), counts)
    offsets = [0, *np.cumsum(counts).tolist()]
    groups = list(row_groups(pa.table({"leaf": leaf_N}), offsets))
    sizes = [group.num_rows for group in groups]
    assert np.array_equal(np.concatenate([[], *(group["leaf"].to_numpy() for group in groups)]), leaf_N)
    assert set(np.cumsum(sizes).tolist()) <= set(offsets)
    assert all(size >= GROUP_ROWS for size in sizes[:-1])
    assert all(0 < size < GROUP_ROWS + max(counts) for size in sizes)


def test_row_groups_reach_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "GROUP_ROWS", 10)
    leaf_N = np.repeat(np.arange(5), [6, 6, 30, 2, 1])
    table = rows(leaf_N, [f"d{row:02d}" for row in range(45)])
    write_shard(tmp_path, "shard.parquet", [table], range(5), [6, 6, 30, 2, 1])
    metadata = pq.read_metadata(tmp_path / "shard.parquet")
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [12, 30, 3]
