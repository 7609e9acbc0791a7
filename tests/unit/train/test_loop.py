"""What every training has in common, on the smallest thing that learns."""

import pytest
import torch
from safetensors import safe_open
from torch import nn

from rayhier.train.loop import Loop, fall

TARGET = torch.tensor([3.0, -1.0])


class Point(Loop):
    """Two numbers that walk to a target; measured by what it is told, or by how near they are."""

    def __init__(self, epochs=6, measure_every=1, devs=None):
        module = nn.Linear(2, 1)
        nn.init.zeros_(module.weight)
        module.bias.requires_grad_(requires_grad=False)
        self.devs, self.kept, self.changes = devs, 0, 0
        super().__init__({"point": module}, (0.5,), epochs, measure_every)

    @property
    def weight(self):
        return self.modules["point"].weight[0]

    def _epoch(self):
        fall(self.optimizer, (0.5,), self.epoch / self.epochs)
        self.optimizer.zero_grad()
        loss = (self.weight - TARGET).square().sum()
        loss.backward()
        self.optimizer.step()
        self.kept += 1
        return {"loss_total": loss.item()}

    def _measured(self):
        near = -(self.weight - TARGET).abs().sum().item()
        return {"dev": near if self.devs is None else self.devs[self.epoch]}

    def _changed(self):
        self.changes += 1

    def _kept(self):
        return {"kept": torch.tensor(self.kept)}

    def _took(self, tensors):
        self.kept = int(tensors["kept"])


def run(loop, epochs=None):
    if not loop.started:
        loop.start()
    while not loop.finished and (epochs is None or loop.epoch < epochs):
        loop.run_epoch()
    return loop


def test_it_walks_there_and_notes_how():
    loop = run(Point())
    assert [row["epoch"] for row in loop.history] == list(range(7))
    assert list(loop.history[0]) == ["epoch", "dev"]
    assert loop.history[-1]["dev"] > loop.history[0]["dev"]
    assert loop.history[-1]["loss_total"] < loop.history[1]["loss_total"]


def test_it_is_finished_only_when_it_has_started():
    loop = Point(epochs=1)
    assert not loop.finished
    assert loop.start() == {"epoch": 0.0, "dev": -4.0}
    assert not loop.finished
    assert loop.run_epoch() == loop.history[-1]
    assert loop.finished


@pytest.mark.parametrize(("epochs", "every", "noted"), [(5, 2, [0, 2, 4, 5]), (5, 9, [0, 5]), (4, 2, [0, 2, 4])])
def test_the_last_epoch_is_always_measured(epochs, every, noted):
    assert [row["epoch"] for row in run(Point(epochs, every)).history] == noted


@pytest.mark.parametrize(
    ("devs", "best"), [([0, 1, 5, 2, 5, 1, 1], 2), ([9, 1, 5, 2, 5, 1, 1], 0), ([0, 1, 2, 3, 4, 5, 6], 6)]
)
def test_back_to_the_first_best(devs, best):
    loop = Point(devs=devs)
    seen = [loop.weight.detach().clone()]
    loop.start()
    while not loop.finished:
        loop.run_epoch()
        seen.append(loop.weight.detach().clone())
    changes = loop.changes
    loop.restore_best()
    assert loop.weight.tolist() == seen[best].tolist()
    assert loop.changes > changes


@pytest.mark.parametrize("stop", [0, 1, 4, 6])
def test_saved_and_loaded_it_goes_on_as_if_nothing_had_been(stop, tmp_path):
    whole = run(Point(devs=[0, 9, 1, 2, 3, 4, 5]))
    path = tmp_path / "new" / "point.safetensors"
    run(Point(devs=whole.devs), stop).save(path)
    resumed = Point(devs=whole.devs)
    resumed.load(path)
    assert (resumed.epoch, resumed.started, resumed.kept) == (stop, True, stop)
    run(resumed)
    assert resumed.history == whole.history
    for end in (lambda loop: None, Loop.restore_best):
        end(resumed)
        end(whole)
        assert resumed.weight.tolist() == whole.weight.tolist()


def test_only_what_learns_is_saved(tmp_path):
    run(Point(epochs=1)).save(tmp_path / "point.safetensors")
    with safe_open(tmp_path / "point.safetensors", "pt") as saved:
        names = set(saved.keys())
    adam = {f"optimizer.0.{name}" for name in ("step", "exp_avg", "exp_avg_sq")}
    assert names == {"point.weight", "best.point.weight", "kept.kept", *adam}


def test_rates_fall_to_zero():
    optimizer = torch.optim.AdamW([{"params": [nn.Parameter(torch.zeros(1))]} for _ in range(2)])
    found = []
    for share in (0.0, 0.25, 1.0):
        fall(optimizer, (0.4, 4.0), share)
        found.append([group["lr"] for group in optimizer.param_groups])
    assert found == [[0.4, 4.0], [pytest.approx(0.3), pytest.approx(3.0)], [0.0, 0.0]]
