"""Keywords of six documents by hand, and of a leaf map by counting every word of it."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from rayhier.index.describe import FEW, FEWEST, KEYWORDS, counted, describe, keywords
from rayhier.index.display import DisplayTree
from rayhier.storage.leaf_map import LeafMap

from ..search.maps import leaf_rows

LEAVES = 4
FLAT = np.arange(LEAVES)[:, None]
"""Leaves as nodes of the only level."""


def score(own, of, rest, others):
    return (1e6 * own / of + 100) / (1e6 * rest / others + 100)


def test_no_documents_and_no_words():
    zero = [np.zeros(LEAVES, np.int64)]
    blank = pa.table({"leaf": pa.array([1], pa.int32()), "title": [""], "text": ["… !"]})
    for table in (blank, blank.slice(0, 0)):
        assert keywords(counted(table, 2), FLAT, zero, 3) == [[[], [], [], []]]


# A whole leaf map: every word of it counts, in leaves and in the nodes above them.

DOCUMENTS, SIZE, COMMON, OWN = 300, 120, 900, 60
"""Documents, words of each, different words that all leaves share, and those of a leaf's own, which are rare in it."""


@pytest.fixture
def tree():
    """Twelve leaves, which are 0, 2, 4, ... and 1, 3, 5, ... of two nodes: a group's leaves are not neighbours."""
    return DisplayTree([np.zeros(2, np.int64), np.arange(12) % 2], grouped=True)


@pytest.fixture
def texts():
    """Leaf and text of every document: words that all leaves share, and a few of its leaf's own."""
    rng = np.random.default_rng(0)
    leaf_N = rng.integers(0, 12, DOCUMENTS)
    made = []
    for leaf in leaf_N.tolist():
        shared = [f"w{word}" for word in (COMMON * rng.random(SIZE - 4) ** 2).astype(int)]
        made.append(" ".join([*shared, *(f"own{leaf}x{word}" for word in rng.integers(0, OWN, 4))]))
    return leaf_N, made


def described(root, write_map, texts, tree, shards):
    leaf_N, made = texts
    ids, likely = [f"d{row}" for row in range(len(made))], np.random.default_rng(1).random(len(made)).tolist()
    leaves = [[leaf] for leaf in leaf_N.tolist()]
    rows = leaf_rows(leaves, np.zeros((len(made), 2), np.float16), doc_id=ids, text=made, log_prob=likely)
    write_map(root, rows, tree.counts[-1], shards)
    return describe(LeafMap.open(root), tree)


def by_hand(texts, tree, most):
    """Keywords of every node, level by level, by counting all words of every node."""
    leaf_N, made = texts
    whole = Counter(word for text in made for word in text.split())
    every, found = sum(whole.values()), []
    assert every > FEW
    for level, nodes in enumerate(tree.counts):
        node_N = tree.paths()[leaf_N, level]
        for node in range(nodes):
            own = Counter(word for row in np.flatnonzero(node_N == node) for word in made[row].split())
            of = sum(own.values())
            scored = [(score(own[word], of, whole[word] - own[word], every - of), word) for word in own]
            held = [(-value, word) for value, word in scored if value > 1 and whole[word] >= FEWEST]
            found.append([word for _, word in sorted(held)[:most]])
    return found


@pytest.mark.parametrize(("shards", "rows"), [(1, 50_000), (4, 50_000), (4, 40)])
def test_keywords_equal_those_of_counting_everything(shards, rows, tmp_path, write_map, texts, tree, monkeypatch):
    """However many shards there are, and parts in which words are read."""
    monkeypatch.setattr("rayhier.index.describe.ROWS_A_BUCKET", rows)
    found = described(tmp_path, write_map, texts, tree, shards)
    assert found["keywords"].to_pylist() == by_hand(texts, tree, KEYWORDS)
