"""Keywords of a leaf map, by counting every word of it."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from rayhier.index.describe import FEW, FEWEST, KEYWORDS, counted, describe, keywords
from rayhier.index.display import DisplayTree

from ..search.maps import leaf_map_of_rows, leaf_rows

TREE = DisplayTree([np.zeros(2, np.int64), np.arange(12) % 2], grouped=True)
"""Twelve leaves, which are 0, 2, 4, ... and 1, 3, 5, ... of two nodes: a group's leaves are not neighbours."""


def test_no_documents_and_no_words():
    blank = pa.table({"leaf": pa.array([1], pa.int32()), "title": [""], "text": ["… !"]})
    for table in (blank, blank.slice(0, 0)):
        assert keywords([counted(table, 2)], np.arange(4)[:, None], [np.zeros(4, np.int64)], 3) == [[[]] * 4]


def by_hand(leaf_N, texts):
    """Keywords of every node, level by level, by counting all words of every node."""
    whole = Counter(word for text in texts for word in text.split())
    every = sum(whole.values())
    assert every > FEW

    def score(word, own, of):
        return (1e6 * own[word] / of + 100) / (1e6 * (whole[word] - own[word]) / (every - of) + 100)

    for level, nodes in enumerate(TREE.counts):
        node_N = TREE.paths()[leaf_N, level]
        for node in range(nodes):
            own = Counter(word for row in np.flatnonzero(node_N == node) for word in texts[row].split())
            scored = [(-score(word, own, sum(own.values())), word) for word in own if whole[word] >= FEWEST]
            yield [word for value, word in sorted(scored)[:KEYWORDS] if value < -1]


@pytest.mark.parametrize(("shards", "rows"), [(1, 50_000), (4, 50_000), (4, 40)])
def test_keywords_equal_those_of_counting_everything(shards, rows, tmp_path, write_map, monkeypatch):
    """However many shards there are, and parts in which words are read."""
    monkeypatch.setattr("rayhier.index.describe.ROWS_A_BUCKET", rows)
    rng = np.random.default_rng(0)
    leaf_N = rng.integers(0, 12, 300)
    texts = []
    for leaf in leaf_N.tolist():  # words that all leaves share, and a few of the leaf's own, which are rare in it
        shared = [f"w{word}" for word in (900 * rng.random(116) ** 2).astype(int)]
        texts.append(" ".join([*shared, *(f"own{leaf}x{word}" for word in rng.integers(0, 60, 4))]))
    ids, leaves = [f"d{row}" for row in range(300)], [[leaf] for leaf in leaf_N.tolist()]
    table = leaf_rows(leaves, np.zeros((300, 2), np.float16), doc_id=ids, text=texts)
    found = describe(leaf_map_of_rows(tmp_path, write_map, table, TREE.counts[-1], shards), TREE)
    assert found["keywords"].to_pylist() == list(by_hand(leaf_N, texts))
