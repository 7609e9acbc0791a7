"""When lists are scanned leaf by leaf: where enough queries share them."""

import numpy as np
import pytest

from rayhier.search import codecs, leaf_by_leaf
from rayhier.search.lists import FileLists, LeafLists

L, ROWS, M, BEAM = 16, 200, 256, 8


@pytest.fixture(scope="module")
def lists():
    vectors = np.random.default_rng(0).normal(size=(L * ROWS, M)).astype(np.float32)
    index = codecs.fill("fp16", vectors, np.repeat(np.arange(L), ROWS), L)
    return LeafLists([FileLists(index, np.arange(L), np.full(L, ROWS))])


@pytest.fixture
def scanned(monkeypatch):
    """Numbers of queries that were scanned leaf by leaf."""
    numbers = []
    monkeypatch.setattr(leaf_by_leaf, "scan", lambda rows, query_QM, *_: numbers.append(len(query_QM)))
    return numbers


def search(lists, queries, k=10, beam=BEAM):
    rng = np.random.default_rng(1)
    leaves = np.stack([rng.permutation(L)[:beam] for _ in range(queries)])
    lists.scan(rng.normal(size=(queries, M)).astype(np.float32), leaves, k)


def test_many_queries_are_scanned_leaf_by_leaf(lists, scanned):
    search(lists, 2_000)
    assert sum(scanned) == 2_000


@pytest.mark.parametrize("queries", [1, 15, 20])
def test_few_queries_are_not(lists, scanned, queries):
    search(lists, queries)
    assert not scanned


def test_nor_are_many_with_one_leaf_each(lists, scanned):
    search(lists, 2_000, beam=1)
    assert not scanned


def test_nor_where_almost_all_rows_are_results(lists, scanned):
    search(lists, 2_000, k=ROWS * BEAM)
    assert not scanned


def test_nor_where_a_filter_skips_almost_all_rows(lists, scanned):
    search(lists.where(np.arange(L * ROWS) % 50 == 0), 2_000)
    assert not scanned
