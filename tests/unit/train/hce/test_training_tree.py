"""The tree of a training: paths, and which nodes are siblings."""

import pytest
import torch

from rayhier.model.hce import Hierarchy
from rayhier.train.hce.hce import TrainingTree
from rayhier.train.loop import Learner


@pytest.fixture
def training_tree():
    """Two nodes below the root; three below the first of them, the last without documents; one below the second."""
    hierarchy = Hierarchy([2, 4], 3)
    torch.manual_seed(0)
    for centroid in hierarchy.centroids:
        torch.nn.init.normal_(centroid)
    made = TrainingTree(Learner({"hierarchy": hierarchy}, (0.1,)), hierarchy, [2, 4], 5)
    made.learner.kept["parent.1"].copy_(torch.tensor([0, 0, 0, 1]))
    made.learner.kept["leaf"].copy_(torch.tensor([0, 3, 1, 0, 3]))
    made.arrange()
    return made


def test_paths_lead_from_the_root_to_the_leaves(training_tree):
    assert training_tree.path_NT.tolist() == [[0, 0], [1, 3], [0, 1], [0, 0], [1, 3]]


def test_a_node_without_documents_is_no_sibling(training_tree):
    training_tree.hierarchy.loss(torch.randn(5, 3), training_tree.path_NT, 0.3).backward()
    learning = [centroid.grad.any(dim=1).tolist() for centroid in training_tree.hierarchy.centroids]
    assert learning == [[True, True], [True, True, False, False]]
