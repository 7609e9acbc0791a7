"""What every training has in common, on the smallest thing that learns."""

import pytest
import torch
from torch import nn

from rayhier.train.loop import FEW_DEV, Learner, Loop

from .driver import run

TARGET = torch.tensor([3.0, -1.0])


class Walk:
    """Two numbers that walk to a target; measured by what it is told."""

    def __init__(self, epochs=6, measure_every=1, devs=None):
        module = nn.Linear(2, 1)
        nn.init.zeros_(module.weight)
        module.bias.requires_grad_(requires_grad=False)
        self.devs, self.epochs, self.measure_every = devs, epochs, measure_every
        self.learner = Learner({"point": module}, (0.5,))

    @property
    def weight(self):
        return self.learner.modules["point"].weight[0]

    def run_pass(self, epoch):
        loss = (self.weight - TARGET).square().sum()
        self.learner.step(loss, epoch / self.epochs)
        return {"loss_total": loss.item()}

    def measure(self):
        return {"dev": 0.0 if self.devs is None else self.devs[self.loop.epoch]}

    def finish(self):
        pass


def walk(epochs=6, measure_every=1, devs=None):
    loop = Loop(Walk(epochs, measure_every, devs))
    loop.phase.loop = loop
    return loop


def test_a_run_that_begins_with_enough_ends_at_once():
    for first, queries, epochs in ((1.0, FEW_DEV, [0]), (0.99, FEW_DEV, [0, 1, 2]), (1.0, 3, [0, 1, 2])):
        loop = walk(epochs=2, devs=[first, 0.5, 0.5])
        loop.enough, loop.learner.kept["top"] = 1.0, torch.ones(queries)
        assert [row["epoch"] for row in run(loop).history] == epochs


def test_the_last_epoch_is_always_measured():
    for epochs, every, noted in ((5, 2, [0, 2, 4, 5]), (5, 9, [0, 5]), (4, 2, [0, 2, 4])):
        assert [row["epoch"] for row in run(walk(epochs, every)).history] == noted


@pytest.mark.parametrize(
    ("devs", "best"), [([0, 1, 5, 2, 5, 1, 1], 2), ([9, 1, 5, 2, 5, 1, 1], 0), ([0, 1, 2, 3, 4, 5, 6], 6)]
)
def test_back_to_the_first_best(devs, best):
    loop = walk(devs=devs)
    seen = [loop.phase.weight.detach().clone()]
    loop.start()
    while not loop.ended:
        loop.run_epoch()
        seen.append(loop.phase.weight.detach().clone())
    changes = loop.learner.version
    loop.restore_best()
    assert loop.phase.weight.tolist() == seen[best].tolist()
    assert (loop.learner.version > changes) == (best < 6)  # else what was computed stays valid
