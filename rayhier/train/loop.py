"""Run the loop that all trainings share: passes over the data, measures, checkpoints, and the best weights.

Everything random follows from (seed, epoch), so that a stopped run resumes with the same result. The first worker keeps
the history and the best weights.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rayhier.train.group import WorkerGroup

FEW_DEV = 100
"""Least number of dev queries for which a perfect measure at the start ends training."""


@dataclass(frozen=True)
class Descent:
    """An optimizer, its settings, and the schedule of learning rates. The defaults are torch's AdamW."""

    optimizer: Literal["adamw", "adafactor"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.999)
    decay: float = 0.01
    decays: Literal["all", "matrices"] = "all"
    warm_up: float = 0.0
    clip: float = math.inf

    def height(self, done: float) -> float:
        """Return the learning rate's factor after a share `done` of training. The factor rises linearly, then falls.

        >>> Descent(warm_up=0.2).height(0.1), Descent(warm_up=0.2).height(0.6), Descent().height(0.25)
        (0.5, 0.5, 0.75)
        """
        return done / self.warm_up if done < self.warm_up else (1 - done) / (1 - self.warm_up)


class Learner:
    def __init__(
        self, modules: Mapping[str, nn.Module], rates: Sequence[float], descent: Descent | None = None
    ) -> None:
        self.modules, self.group, self.descent = dict(modules), WorkerGroup(), descent or Descent()
        self.parameters = list(self.learned().values())
        self.group.copy_from_first(self.parameters)
        self.optimizer = _optimizer(self.modules, rates, self.descent)
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.version = 0
        """Number of changes of the weights. Results that were computed at a lower number are out of date."""
        self.kept: dict[str, Tensor] = {}
        """Further tensors that a checkpoint must hold, by name."""

    def learned(self) -> dict[str, Tensor]:
        return {
            f"{part}.{name}": value
            for part, module in self.modules.items()
            for name, value in module.named_parameters()
            if value.requires_grad
        }

    def step(self, loss: Tensor, done: float, backward: Callable[[], None] = lambda: None) -> None:
        """Take an optimizer step on this worker's share of a loss, and call `backward` after its backward pass."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.descent.height(done)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        backward()
        self.group.sum_gradients(self.parameters)
        if math.isfinite(self.descent.clip):
            nn.utils.clip_grad_norm_(self.parameters, self.descent.clip)
        self.optimizer.step()
        self.version += 1

    def state(self) -> dict[str, Tensor]:
        return {name: value.detach().cpu().clone() for name, value in self.learned().items()}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, value in self.learned().items():
            value.copy_(tensors[name])
        self.version += 1

    def share(self) -> None:
        self.group.copy_from_first(self.parameters)
        self.version += 1


class Phase(ABC):
    learner: Learner
    epochs: int
    measure_every: int
    """Number of passes from one measurement to the next. The last pass is always measured."""

    @abstractmethod
    def run_pass(self, epoch: int) -> dict[str, float]: ...

    @abstractmethod
    def measure(self) -> dict[str, float]:
        """Measure the current weights on dev, on every worker. The first worker's result counts.

        `best_row` compares `dev`, and `error`: the standard error of the difference to the best `dev` so far.
        """

    def finish(self) -> None:  # noqa: B027  most phases have nothing left to do
        """Do the phase's last work, on every worker, after the best weights are restored."""


POSITION = ("epoch", "started", "stopped", "history")


class Loop:
    def __init__(self, phase: Phase, enough: float = math.inf) -> None:
        """Make a loop that trains nothing if `dev` is at least `enough` at the start, over at least FEW_DEV queries."""
        self.enough = enough
        self.phase, self.learner, self.group = phase, phase.learner, phase.learner.group
        self.epoch = 0
        self.started = False
        self.history: list[dict[str, float]] = []
        """Losses and measures after each measured pass. Only the first worker keeps `history` and `best`."""
        self.best: dict[str, Tensor] = {}
        self._best_version = -1
        self.stopped = False

    @property
    def ended(self) -> bool:
        return self.started and (self.stopped or self.epoch >= self.phase.epochs)

    def start(self) -> dict[str, float] | None:
        self.started = True
        return self._note({})

    def run_epoch(self) -> dict[str, float] | None:
        """Run one pass, and return its row of the history on the first worker. None if the pass is not measured."""
        losses = self.phase.run_pass(self.epoch)
        self.epoch += 1
        return self._note(losses)

    def restore_best(self) -> None:
        if self.group.agree(self._best_version == self.learner.version):
            return  # nothing changed, so results computed from these weights stay valid
        if self.group.rank == 0:
            self.learner.load(self.best)
        self.learner.share()

    def _note(self, losses: dict[str, float]) -> dict[str, float] | None:
        if self.epoch % self.phase.measure_every and self.epoch < self.phase.epochs:
            return None
        measures = self.phase.measure()
        row = {"epoch": float(self.epoch), **losses, **measures} if self.group.rank == 0 else None
        if row is not None:
            self.history.append(row)
            if best_row(self.history) is row:
                self.best, self._best_version = self.learner.state(), self.learner.version
        if self.epoch == 0:
            perfect = row is not None and row["dev"] >= self.enough and len(self.learner.kept.get("top", ())) >= FEW_DEV
            self.stopped = self.group.agree(perfect)
        return row

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = self.learner.state() | {f"kept.{name}": tensor for name, tensor in self.learner.kept.items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for number, state in self.learner.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": torch.as_tensor(value) for name, value in state.items()}
        tensors = {name: tensor.cpu().clone().contiguous() for name, tensor in tensors.items()}
        position = {name: getattr(self, name) for name in POSITION}
        save_file(tensors, path, metadata={"position": json.dumps(position)})

    def load(self, path: Path) -> None:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            position: dict[str, Any] = json.loads(file.metadata()["position"])
        for name in POSITION:
            setattr(self, name, position[name])
        self.learner.load(tensors)
        self.best = _below("best.", tensors)
        self.learner.kept = _below("kept.", tensors)
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in _below("optimizer.", tensors).items():
            number, _, field = name.partition(".")
            state.setdefault(int(number), {})[field] = value
        optimizer = self.learner.optimizer
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def best_row(history: Sequence[dict[str, float]]) -> dict[str, float]:
    """Choose the row of a history whose weights a training returns: the best on dev, or a later row that matches it.

    A row with an `error` matches if its `dev` is lower than the best by at most its `error`. The last such row is
    chosen. Few dev queries tell rows apart only by chance, and the end of a schedule is the better guess.

    >>> best_row([{"dev": 0.5}, {"dev": 0.7}, {"dev": 0.7}, {"dev": 0.6}])
    {'dev': 0.7}
    >>> best_row([{"dev": 0.5, "error": 0.0}, {"dev": 0.7, "error": 0.1}, {"dev": 0.68, "error": 0.03}])
    {'dev': 0.68, 'error': 0.03}
    """
    top = chosen = history[0]
    for row in history[1:]:
        if row["dev"] > top["dev"]:
            top = chosen = row
        elif row.get("error", -1.0) >= top["dev"] - row["dev"]:
            chosen = row
    return chosen


def _optimizer(modules: Mapping[str, nn.Module], rates: Sequence[float], descent: Descent) -> torch.optim.Optimizer:
    decay = descent.decay if descent.optimizer == "adamw" else 0.0
    groups: list[dict[str, Any]] = []
    for module, rate in zip(modules.values(), rates, strict=True):
        learned = [p for p in module.parameters() if p.requires_grad]
        spared = [p for p in learned if descent.decays == "matrices" and p.ndim < 2]
        decayed = [p for p in learned if not any(p is parameter for parameter in spared)]
        groups.append({"params": decayed, "lr": rate, "weight_decay": decay})
        groups += [{"params": spared, "lr": rate, "weight_decay": 0.0}] if spared else []
    if descent.optimizer == "adamw":
        return torch.optim.AdamW(groups, betas=descent.betas)
    # AdaFactor (Shazeer and Stern, 2018) with the given rates: no relative steps, no scaling by the parameter's size.
    # torch's version scales by the parameter's size, and would move centroids far less than the encoder.
    from transformers.optimization import Adafactor

    # The constructor needs a rate, but every step sets another rate.
    optimizer: torch.optim.Optimizer = Adafactor(
        groups, lr=1e-3, relative_step=False, scale_parameter=False, warmup_init=False
    )
    return optimizer


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
