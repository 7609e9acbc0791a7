"""A tree's levels as representations: the offset that the cosine begins with."""

import math

import pytest
import torch

from rayhier.model.retreever import NodeTree, Splits, TreeLevels

REMOVED = [0.4, -1.0, 2.0]
"""Mean scores that were removed from the root's split and from the two below it; what is positive goes left."""


def left(score):
    return 1 / (1 + math.exp(-score))


def test_the_offset_begins_at_the_leaves_of_the_mean_text():
    levels = TreeLevels(NodeTree(Splits(5, 2)), "cosine")
    levels.begin(torch.tensor(REMOVED))
    root, first, second = map(left, REMOVED)
    leaves = [root * first, root * (1 - first), (1 - root) * second, (1 - root) * (1 - second)]
    assert levels.offset_L.tolist() == pytest.approx([4 * leaf - 1 for leaf in leaves], abs=1e-6)


def test_total_variation_has_no_offset():
    levels = TreeLevels(NodeTree(Splits(5, 2)), "tv")
    levels.begin(torch.tensor(REMOVED))
    assert levels.offset_L is None
