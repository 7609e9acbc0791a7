"""Leaf lists at their edges; what they find is in tests/oracles/test_faiss_scan.py."""

import gc
from itertools import pairwise

import numpy as np
import pytest

from rayhier.search.lists import LeafLists, _layers

# Five documents: two in leaf 0, none in leaf 1, three in leaf 2, none in leaf 3.
VECTORS = np.array([[1, 0], [0, 1], [0.6, 0.8], [0.8, 0.6], [-1, 0]], np.float32)
LEAVES = np.array([0, 2, 0, 2, 2])


def visited(lists, leaves):
    """Documents of all the leaves, counted by the lists."""
    return lists.count(leaves)[0]


def scanned(lists, leaves):
    """Rows of all the leaves, counted by the lists."""
    return lists.count(leaves)[1]


@pytest.fixture
def lists():
    return LeafLists.build(VECTORS, LEAVES, 4)


def search(lists, leaves, k=4):
    scores, rows = lists.scan(np.array([[1, 0]], np.float32), np.array([leaves]), k)
    return scores[0].tolist(), rows[0].tolist()


def test_sizes_count_every_leaf(lists):
    assert lists.sizes.tolist() == [2, 0, 3, 0]


def test_fewer_than_k_end_in_minus_one_and_minus_infinity(lists):
    scores, rows = search(lists, [0])
    assert rows == [0, 2, -1, -1]
    assert scores == pytest.approx([1, 0.6, -np.inf, -np.inf])


def test_empty_leaves_hold_nothing(lists):
    assert search(lists, [1, 3], 2) == ([-np.inf, -np.inf], [-1, -1])


def test_an_empty_leaf_beside_a_full_one(lists):
    assert search(lists, [3, 2, 1])[1] == [3, 1, 4, -1]


def test_negative_scores_are_results(lists):
    scores, rows = search(lists, [2], 3)
    assert rows == [3, 1, 4]
    assert scores == pytest.approx([0.8, 0, -1])


def test_each_query_has_its_own_leaves(lists):
    _, rows = lists.scan(np.array([[1, 0], [1, 0]], np.float32), np.array([[0], [2]]), 1)
    assert rows.tolist() == [[0], [3]]


def test_visited_is_counted(lists):
    assert visited(lists, np.array([[0, 1], [2, 0], [3, 1]])).tolist() == [2, 5, 0]


def test_the_given_arrays_may_go(lists):
    vectors, leaves = VECTORS.astype(np.float64), LEAVES.astype(np.int32)
    made = LeafLists.build(vectors, leaves, 4)
    vectors[:] = leaves[:] = 0
    del vectors, leaves
    gc.collect()
    assert search(made, [0, 2]) == search(lists, [0, 2])


@pytest.mark.parametrize(("files", "leaves", "share"), [(40, 300, 0.5), (40, 300, 0.02), (5, 10, 0.4), (3, 4, 0.0)])
def test_a_file_is_in_the_first_layer_that_has_none_of_its_leaves(files, leaves, share):
    draw = np.random.default_rng(files)
    leaves_F = [np.flatnonzero(draw.random(leaves) < share * draw.random()) for _ in range(files)]
    leaf_L, first_F = np.concatenate(leaves_F), np.cumsum([0, *map(len, leaves_F)])
    in_range_L = draw.random(len(leaf_L)) < 0.9
    taken, wanted = [], []
    for first, last in pairwise(first_F.tolist()):
        places = {int(leaf_L[place]): place for place in range(first, last) if in_range_L[place]}
        number = next((number for number, layer in enumerate(taken) if not layer & places.keys()), len(taken))
        if number == len(taken):
            taken.append(set())
            wanted.append({})
        taken[number] |= places.keys()
        wanted[number] |= places
    layers = [layer(np.arange(leaves)) for layer in _layers(leaf_L, in_range_L, first_F)]
    got = [{leaf: place for leaf, place in enumerate(layer.tolist()) if place >= 0} for layer in layers]
    assert got == wanted
