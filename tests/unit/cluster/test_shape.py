"""Statistics of a tree and its text, worked out by hand."""

import numpy as np
import pytest

from rayhier.cluster.document_tree import DocumentTree, grow
from rayhier.cluster.shape import dump, statistics, table

NAMES = ["ant", "bee", "a very  long\nname " + "x" * 80, "cat", "dog", "eel", "fox"]


@pytest.fixture
def tree():
    """Nodes 0 and 1, below them nodes 0 2 and 1 3, of which 2 is empty."""
    return DocumentTree(
        [np.eye(2, dtype=np.float32), np.array([[1, 0], [0, 1], [0.6, 0.8], [0, 1]], dtype=np.float32)],
        [np.array([0, 0]), np.array([0, 1, 0, 1])],
        np.array([0, 0, 1, 3, 3, 3, 3]),
    )


def test_statistics(tree):
    top, low = statistics(tree)
    assert (top.level, top.nodes, top.empty, top.smallest, top.median, top.largest) == (1, 2, 0, 2, 3.5, 5)
    assert top.imbalance == pytest.approx(2 * (4 + 25) / 49)
    assert top.cosine == pytest.approx((1 + 1 + 0.6 + 1) / 4)
    assert (low.level, low.nodes, low.empty, low.smallest, low.median, low.largest) == (2, 4, 1, 0, 1.5, 4)
    assert low.imbalance == pytest.approx(4 * (4 + 1 + 16) / 49)
    assert low.cosine is None


def test_the_lowest_cosine_needs_vectors(tree):
    vectors = np.array([[1, 0]] * 2 + [[0.6, 0.8]] * 5, dtype=np.float32)
    assert statistics(tree, vectors)[1].cosine == pytest.approx((2 + 5 * 0.8) / 7)


def test_table(tree):
    assert table(statistics(tree)) == [
        "level  nodes  empty  smallest  median  largest  imbalance  cosine",
        "    1      2      0         2     3.5        5      1.184   0.900",
        "    2      4      1         0     1.5        4      1.714       -",
    ]


def test_text(tree):
    assert list(dump(tree, NAMES, each=2)) == [
        "7 documents",
        "  1: 5 documents",
        "    3: 4 documents: cat; dog; …",
        f"    1: 1 document: a very long name {'x' * 42}…",
        "  0: 2 documents",
        "    0: 2 documents: ant; bee",
    ]


def test_text_down_to_a_level(tree):
    assert list(dump(tree, NAMES, depth=1, each=1)) == [
        "7 documents",
        f"  1: 5 documents: a very long name {'x' * 42}…; …",
        "  0: 2 documents: ant; …",
    ]


@pytest.mark.parametrize(("lines", "last"), [(1, "… and 4 more nodes"), (4, "… and 1 more nodes")])
def test_text_ends_after_some_lines(tree, lines, last):
    found = list(dump(tree, NAMES, lines=lines))
    assert found[:-1] == list(dump(tree, NAMES))[: lines + 1]
    assert found[-1] == last


def test_text_of_a_root_alone():
    tree = grow(np.eye(3, dtype=np.float32), 8, seed=0)
    assert list(dump(tree, [*NAMES[:2], "cat"], each=2)) == ["3 documents", "  ant; bee; …"]
    assert table(statistics(tree)) == ["level  nodes  empty  smallest  median  largest  imbalance  cosine"]
