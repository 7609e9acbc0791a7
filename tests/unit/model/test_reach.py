"""The taught router's loss: the probability of reaching any leaf of an answer, by hand and by gradients."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rayhier.model.learned_ivf import reach_loss


@pytest.fixture(autouse=True)
def drawn():
    torch.manual_seed(0)


def test_reach_by_hand():
    log_p = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]]).log()
    row, leaves = torch.tensor([0, 0, 1, 1]), torch.tensor([[0, 1], [3, 1], [0, 2], [2, 2]])
    found = reach_loss(log_p, row, leaves, torch.tensor([1.0, 2.0, 0.5, 1.0]))
    wanted = np.log(0.3) + 2 * np.log(0.6) + 0.5 * np.log(0.8) + np.log(0.1)  # a leaf twice counts once
    assert float(found) == pytest.approx(-wanted, abs=1e-6)


def test_one_leaf_is_cross_entropy():
    logits, leaf = torch.randn(5, 7), torch.arange(5)
    found = reach_loss(logits.log_softmax(dim=1), torch.arange(5), leaf[:, None], torch.ones(5))
    torch.testing.assert_close(found, F.cross_entropy(logits, leaf, reduction="sum"))


def test_gradients_of_reach():
    logits = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    row, leaves = torch.tensor([0, 0, 2, 2]), torch.tensor([[0, 1], [5, 3], [4, 4], [2, 0]])
    weight = torch.tensor([1.0, 3.0, 0.5, 1.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: reach_loss(x.log_softmax(dim=1), row, leaves, weight), (logits,))
