"""Queries of the nodes that their paths go through, by hand."""

import numpy as np

from rayhier.inspect.nodes import by_node


def test_a_node_keeps_its_queries_though_others_are_more_probable_there():
    """`a` to `c` go to leaf 1, and lie in leaf 0 more probably than `d`, which goes there."""
    probability_QL = np.array([[0.4, 0.6, 0.0]] * 3 + [[0.35, 0.33, 0.32]], np.float32)
    assert by_node(list("abcd"), probability_QL, np.arange(3)[:, None], [3]) == [[["d"], ["a", "b", "c"], []]]


def test_the_most_probable_queries_of_a_node_come_first():
    probability_QL = np.array([[0.6, 0.4], [0.9, 0.1], [0.7, 0.3], [0.8, 0.2]], np.float32)
    assert by_node(list("abcd"), probability_QL, np.zeros((2, 1), np.int64), [1]) == [[["a", "b", "c"]]]
    assert by_node(list("abcd"), probability_QL, np.arange(2)[:, None], [2]) == [[["b", "d", "c"], []]]


def test_a_path_leads_to_the_most_probable_leaf_and_without_queries_no_node_has_one():
    """Of all leaves the last is most probable, though the first two, below one node, are so together."""
    path_LT = np.array([[0, 0], [0, 1], [1, 2]])
    assert by_node(["a"], np.array([[0.3, 0.3, 0.4]]), path_LT, [2, 3]) == [[[], ["a"]], [[], [], ["a"]]]
    assert by_node([], np.zeros((0, 2), np.float32), np.arange(2)[:, None], [2]) == [[[], []]]
