"""The contrast's loss and its gradient are those of sentence-transformers' MultipleNegativesRankingLoss."""

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from rayhier.spec.train import ContrastTraining
from rayhier.train.contrast import Contrast

from .test_hce import ROWS, N, Q, parts, silent


def build(temperature):
    return Contrast(*parts(), ContrastTraining(type="contrast", temperature=temperature), 0, silent)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_the_loss_is_theirs(temperature, hard):
    rng = np.random.default_rng(1)
    rows, negatives = rng.permutation(Q)[:ROWS], rng.integers(Q, N, ROWS)
    ours, theirs = build(temperature), build(temperature)
    loss = ours.take([ours.batch(rows, negatives if hard else negatives[:0])])

    asks = [("query", rows), ("document", rows), *([("document", negatives)] if hard else [])]
    reference = MultipleNegativesRankingLoss(torch.nn.Identity(), scale=1 / temperature)
    wanted = reference.compute_loss_from_embeddings([theirs.tower.encode(*ask) for ask in asks], None)
    wanted.backward()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert theirs.learner.parameters[0].grad.abs().max() > 1e-3
    torch.testing.assert_close(ours.learner.parameters[0].grad, theirs.learner.parameters[0].grad, atol=1e-5, rtol=1e-4)
