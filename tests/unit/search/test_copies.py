"""Documents with several rows: in two leaves, in passages. Against sets counted by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayhier.dataset.documents import Copies
from rayhier.search.segment.lists import LeafLists

M, L = 4, 6


def visited(lists, leaves):
    """Documents of all the leaves, counted by the lists."""
    return lists.count(leaves)[0]


def scanned(lists, leaves):
    """Rows of all the leaves, counted by the lists."""
    return lists.count(leaves)[1]


def unit(rng, n):
    vectors = rng.normal(size=(n, M)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def in_two_leaves(seed, n, third=False):
    """n documents, each in 2 or 3 different leaves: (vectors by document, leaves [n, r], lists, document of a row)."""
    rng = np.random.default_rng(seed)
    r = 3 if third else 2
    vectors = unit(rng, n)
    leaves = np.stack([rng.permutation(L)[:r] for _ in range(n)])
    document = np.tile(np.arange(n), r)
    leaf = leaves.T.reshape(-1)
    lower = np.full((n * r, r - 1), -1)
    for rank in range(1, r):
        lower[n * rank : n * (rank + 1), :rank] = leaves[:, :rank]
    lists = LeafLists.build(vectors[document], leaf, L, Copies(document, lower))
    return vectors, leaves, lists, document


def probes(seed, queries, beam):
    rng = np.random.default_rng(seed + 1)
    return np.stack([rng.permutation(L)[:beam] for _ in range(queries)])


@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, L), st.booleans())
@settings(max_examples=60)
def test_visited_counts_documents_scanned_counts_rows(seed, n, beam, third):
    _, leaves, lists, _ = in_two_leaves(seed, n, third)
    probed = probes(seed, 5, beam)
    inside = np.array([[[leaf in row for leaf in own] for own in leaves] for row in probed])
    assert visited(lists, probed).tolist() == inside.any(axis=2).sum(axis=1).tolist()
    assert scanned(lists, probed).tolist() == inside.sum(axis=(1, 2)).tolist()
    assert lists.documents == n


@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, L), st.integers(1, 40), st.booleans())
@settings(max_examples=60)
def test_each_document_comes_once(seed, n, beam, k, third):
    vectors, leaves, lists, document = in_two_leaves(seed, n, third)
    queries, probed = unit(np.random.default_rng(seed + 2), 5), probes(seed, 5, beam)
    scores, rows = lists.scan(queries, probed, k)
    for query, own, found, values in zip(queries, probed, rows, scores, strict=True):
        members = np.flatnonzero(np.isin(leaves, own).any(axis=1))
        best = np.sort(vectors[members] @ query)[::-1][:k]
        kept = found[found >= 0]
        assert len(set(document[kept].tolist())) == len(kept) == len(best)
        np.testing.assert_allclose(values[: len(kept)], best, atol=1e-6)
        assert (values[len(kept) :] == -np.inf).all()


def test_passages_of_one_document_never_crowd_the_others_out():
    """Fifty passages of one document lie nearest: the second document is found nevertheless."""
    vectors = np.zeros((60, M), np.float32)
    vectors[:, 0], vectors[:, 1] = np.linspace(1, 0.1, 60), np.sqrt(1 - np.linspace(1, 0.1, 60) ** 2)
    parent = np.array([0] * 50 + [1] * 9 + [2])
    lists = LeafLists.build(vectors, np.zeros(60, int), 1, Copies(parent))
    scores, rows = lists.scan(np.eye(M, dtype=np.float32)[:1], np.array([[0]]), 3)
    assert parent[rows[0]].tolist() == [0, 1, 2]
    assert rows[0].tolist() == [0, 50, 59]
    assert scores[0] == pytest.approx(vectors[[0, 50, 59], 0])
    assert visited(lists, np.array([[0]])).tolist() == [60]
