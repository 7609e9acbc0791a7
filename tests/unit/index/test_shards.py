"""Leaf ranges and shards: every leaf in one range, every row once, no row group ends inside a leaf."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayhier.index.shards import GROUP_ROWS, row_groups, write_shard
from rayhier.storage.leaf_map import ranges

from ..search.maps import leaf_rows

COUNTS = st.lists(st.integers(0, 20) | st.just(0), min_size=1, max_size=30)


@given(COUNTS, st.integers(1, 40))
def test_ranges_cover_every_leaf_once_and_exceed_their_share_by_one_leaf_at_most(counts, wanted):
    found = ranges(counts, wanted)
    assert [leaf for first, last in found for leaf in range(first, last)] == list(range(len(counts)))
    assert all(first < last for first, last in found)
    assert len(found) == min(wanted, len(counts))
    share = sum(counts) / len(found)
    assert max(sum(counts[first:last]) for first, last in found) <= share + max(counts)


def rows(counts):
    """A document in leaf 0, 1, … for each of the rows that the leaf has."""
    leaves = [[leaf] for leaf in np.repeat(np.arange(len(counts)), counts).tolist()]
    ids = [f"d{n}" for n in range(len(leaves))]
    return leaf_rows(leaves, np.zeros((len(leaves), 2), np.float16), doc_id=ids, text=ids)


def test_a_miscount_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match="leaves 0 to 2 do not hold the rows that were counted"):
        write_shard(tmp_path, "data/0.parquet", [rows([2, 3, 1])], range(3), [2, 4, 1])
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
