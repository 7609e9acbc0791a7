"""Nodes of a built index: sizes of the version that is read, children by size, and what is refused."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.index.nodes import NodeTable
from rayhier.spec import InputError
from rayhier.storage import parquet, schemas
from rayhier.storage.leaf_map import LEAVES

from ...conftest import leaf_map_of
from ..serve.conftest import make_published


@pytest.fixture
def described():
    """Five leaves below three nodes, two of them below the first, as a build wrote them with other sizes."""
    rows = [
        (1, 0, 0, 9, ["a"], ["d1"]),
        (1, 1, 0, 9, ["b"], ["d2"]),
        (1, 2, 0, 9, [], []),
        (2, 0, 0, 9, ["c"], ["d1"]),
        (2, 1, 0, 9, ["d"], ["d3"]),
        (2, 2, 1, 9, ["e"], ["d2", "d4"]),
        (2, 3, 1, 9, ["f"], []),
        (2, 4, 2, 9, [], []),
    ]
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=schemas.LEAVES)


@pytest.fixture
def table(described):
    return NodeTable(described, np.array([1, 2, 7, 0, 0]))


def test_children_come_by_their_size_in_this_version_and_without_empty_ones(table):
    (first, second), total = table.below("0:0", 9)
    assert (first.name, first.size, first.keywords) == ("1:1", 7, ["b"])
    assert (second.name, second.size, total) == ("1:0", 3, 2)
    assert [table.children(node) for node in (first, second)] == [1, 2]
    nodes, total = table.below("1:0", 9)
    assert [(node.name, node.parent, node.size) for node in nodes] == [("2:1", 0, 2), ("2:0", 0, 1)]
    assert total == 2
    assert ([node.name for node in table.below("1:1", 9)[0]], table.below("1:2", 9)) == (["2:2"], ([], 0))
    assert table.below("2:2", 9) == ([], 0)
    assert [node.name for node in table.below("1:0", 1)[0]] == ["2:1"]


def test_leaves_come_as_they_are_named(table):
    nodes = table.leaves([2, 4])
    assert [(node.name, node.size, node.documents) for node in nodes] == [("2:2", 7, ["d2", "d4"]), ("2:4", 0, [])]
    assert [table.children(node) for node in nodes] == [0, 0]


def test_what_is_not_there_is_refused(table, described):
    for number in (-1, 5):
        with pytest.raises(InputError, match=rf"leaf: got {number}; allowed: 0 to 4"):
            table.leaves([0, number])
    for name in ("3:0", "1:3", "0:1", "1", "a:b", "-1:0"):
        with pytest.raises(InputError, match="allowed: LEVEL:NUMBER"):
            table.below(name, 9)
    with pytest.raises(InputError, match="got 5 leaves; allowed: 4"):
        NodeTable(described, np.zeros(4, np.int64))


def test_of_a_leaf_map(tmp_path, tiny_model):
    leaf_map = leaf_map_of(make_published(tmp_path, tiny_model))
    nodes, total = NodeTable.of(leaf_map).below("0:0", 100)
    counts = [count for count in leaf_map.manifest.counts if count]
    assert sorted(node.size for node in nodes) == sorted(counts)
    assert total == len(counts)
    parquet.write(leaf_map.root, LEAVES, [pa.table({"leaf": [1]})], pa.schema([("leaf", pa.int64())]))
    with pytest.raises(InputError, match="another version of rayhier"):
        NodeTable.of(leaf_map)
