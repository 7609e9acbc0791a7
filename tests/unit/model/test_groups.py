"""Documents placed by the leaves of their nearest groups alone: as by all leaves, or nearly."""

import pytest
import torch
from torch.nn import functional as F

from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.router import place_all

M = 16


def unit(*shape, seed=0):
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def grouped(leaves=400, groups=40):
    """Leaves in groups by their nearest of so many directions."""
    router = LearnedIvfRouter(M, leaves, 0, groups=groups)
    router.begin(unit(leaves, M, seed=1))
    router.cells.group_GM.copy_(unit(groups, M, seed=2))
    router.cells.group_L.copy_((router.cells.centroid_LM @ router.cells.group_GM.T).argmax(dim=1))
    router.cells.price_L.copy_(0.05 * torch.rand(leaves, generator=torch.Generator().manual_seed(3)))
    return router.requires_grad_(requires_grad=False)


def place_by_all(router, texts, count):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(router.cells, "groups", 0)
        return place_all(router, Encoded(texts), count)


@pytest.mark.parametrize("count", [1, 32])
def test_documents_that_look_at_near_groups_alone_are_placed_as_by_all(count):
    router, texts = grouped(), unit(300, M, seed=4)
    leaves, log_probs = place_all(router, Encoded(texts), count)
    assert leaves.shape == (300, count)
    exact, exact_log_probs = place_by_all(router, texts, count)
    same = (leaves[:, 0] == exact[:, 0]).float().mean()
    assert same > 0.95
    assert all(len(set(row)) == count for row in leaves.tolist())
    agree = leaves[:, 0] == exact[:, 0]
    over = log_probs[agree, 0] - exact_log_probs[agree, 0]  # of a sum that lacks the groups not looked at
    assert (over > -1e-5).all()
    assert over.mean() < 0.2


def test_near_groups_by_hand(monkeypatch):
    """All groups looked at: the very leaves of the exact way."""
    router, texts = grouped(groups=20), unit(50, M, seed=4)
    exact = place_by_all(router, texts, 8)[0]
    monkeypatch.setattr("rayhier.model.cells.PROBES", 19)
    near = place_all(router, Encoded(texts), 8)[0]
    for text, own, wanted in zip(texts, near, exact, strict=True):
        left_out = (text @ router.cells.group_GM.T).argmin()
        allowed = [leaf for leaf in wanted.tolist() if router.cells.group_L[leaf] != left_out]
        assert own.tolist()[: len(allowed)] == allowed


def test_near_groups_with_too_few_leaves_are_not_all_that_is_looked_at():
    router, texts = grouped(leaves=60, groups=40), unit(50, M, seed=4)
    leaves, log_probs = place_all(router, Encoded(texts), 55)
    exact, exact_log_probs = place_by_all(router, texts, 55)
    assert torch.equal(leaves, exact)
    assert torch.allclose(log_probs, exact_log_probs)
