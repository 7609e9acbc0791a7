"""The loop of every training: modules that learn, epochs, the best state on dev, and checkpoints of these.

Everything random follows from (seed, epoch), so that a killed run resumes with the same result. The first worker
measures, and keeps history and best state; the others only share the work.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rayhier.train.group import WorkerGroup


class Learner:
    """Named modules that learn together by one optimizer, and the workers that share their batches."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        rates: Sequence[float],
        group: WorkerGroup | None = None,
        optimizer: Literal["adamw", "adafactor"] = "adamw",
    ) -> None:
        """Copy the first worker's weights to every worker; `rates` are the modules' learning rates."""
        self.modules, self.rates, self.group = dict(modules), tuple(rates), group or WorkerGroup()
        self.parameters = list(self.learned().values())
        self.group.copy_from_first(self.parameters)
        own = [[p for p in module.parameters() if p.requires_grad] for module in self.modules.values()]
        groups = [{"params": params, "lr": rate} for params, rate in zip(own, self.rates, strict=True)]
        self.optimizer = torch.optim.AdamW(groups) if optimizer == "adamw" else _adafactor(groups)
        self.version = 0
        """Number of changes of the weights: whatever was computed from them is valid until it changes."""
        self.kept: dict[str, Tensor] = {}
        """Further tensors that a checkpoint must hold, by name."""

    def learned(self) -> dict[str, Tensor]:
        """Every parameter that learns, by name."""
        return {
            f"{part}.{name}": value
            for part, module in self.modules.items()
            for name, value in module.named_parameters()
            if value.requires_grad
        }

    def step(self, loss: Tensor, done: float, backward: Callable[[], None] = lambda: None) -> None:
        """Take one optimizer step on this worker's share of a loss.

        Learning rates fall to zero with `done`, the share of the run that is over. `backward` continues the backward
        pass below cached vectors, where that of the loss ends.
        """
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * (1 - done)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        backward()
        self.group.sum_gradients(self.parameters)
        self.optimizer.step()
        self.version += 1

    def state(self) -> dict[str, Tensor]:
        """Copies of the weights, by name."""
        return {name: value.detach().cpu().clone() for name, value in self.learned().items()}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Load weights by name."""
        for name, value in self.learned().items():
            value.copy_(tensors[name])
        self.version += 1

    def share(self) -> None:
        """Copy the first worker's weights to every worker."""
        self.group.copy_from_first(self.parameters)
        self.version += 1


class Phase(Protocol):
    """One phase of training, which a `Loop` runs."""

    @property
    def learner(self) -> Learner:
        """Modules that learn, and their workers."""

    @property
    def epochs(self) -> int:
        """Number of passes."""

    @property
    def measure_every(self) -> int:
        """Number of passes from one measurement to the next; the last pass is always measured."""

    @property
    def patience(self) -> int | None:
        """Measurements without gain after which training stops; None: it runs to its last pass."""

    def run_pass(self, epoch: int) -> dict[str, float]:
        """Run one pass over the examples, on every worker; returns values for the history."""

    def measure(self) -> dict[str, float]:
        """Measure the current state, on the first worker; `dev`, higher is better, picks the best state."""

    def finish(self) -> None:
        """Do the remaining work, on every worker, after the best state is restored."""


class Loop:
    """Runs the passes of a phase, from the start or from a checkpoint."""

    def __init__(self, phase: Phase) -> None:
        self.phase, self.learner, self.group = phase, phase.learner, phase.learner.group
        self.epoch = 0
        self.started = False
        self.history: list[dict[str, float]] = []
        """Losses and measures after each measured pass; like `best`, on the first worker only."""
        self.best: dict[str, Tensor] = {}
        self.stopped = False
        """Whether no gain was seen for as long as the phase is patient."""

    @property
    def ended(self) -> bool:
        """Whether every pass is done, or training has stopped."""
        return self.started and (self.stopped or self.epoch >= self.phase.epochs)

    def start(self) -> dict[str, float] | None:
        """Measure the untrained state: epoch 0 of the history."""
        self.started = True
        return self._note({})

    def run_epoch(self) -> dict[str, float] | None:
        """Run one pass; returns its row of the history, on the first worker, if the pass is measured."""
        losses = self.phase.run_pass(self.epoch)
        self.epoch += 1
        return self._note(losses)

    def restore_best(self) -> None:
        """Restore, on every worker, the state that measured best on dev."""
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
                self.best = self.learner.state()
        if self.phase.patience is not None:
            self.stopped = self.group.agree(self._since_best() >= self.phase.patience)
        return row

    def _since_best(self) -> int:
        """Number of measurements after the best one."""
        values = [row["dev"] for row in self.history]
        return len(values) - 1 - values.index(max(values)) if values else 0

    def save(self, path: Path) -> None:
        """Write all state that training changes to one safetensors file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = self.learner.state() | {f"kept.{name}": tensor for name, tensor in self.learner.kept.items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for number, state in self.learner.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": torch.as_tensor(value) for name, value in state.items()}
        place = {"epoch": self.epoch, "started": self.started, "stopped": self.stopped, "history": self.history}
        position = json.dumps(place)
        tensors = {name: tensor.cpu().clone().contiguous() for name, tensor in tensors.items()}
        save_file(tensors, path, metadata={"position": position})

    def load(self, path: Path) -> None:
        """Restore the state that `save` wrote."""
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            position: dict[str, Any] = json.loads(file.metadata()["position"])
        self.epoch, self.started, self.stopped, self.history = (
            position[name] for name in ("epoch", "started", "stopped", "history")
        )
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
    """Row of a history whose state is kept: the best on dev, or where rows have an error, the last one not behind it.

    A row is behind where its `dev` is lower than the best by more than its `error`: few dev queries tell states apart
    only by chance, and a schedule that has run to its end is the better guess.

    >>> best_row([{"dev": 0.5}, {"dev": 0.7}, {"dev": 0.7}, {"dev": 0.6}])
    {'dev': 0.7}
    >>> best_row([{"dev": 0.5, "error": 0.0}, {"dev": 0.7, "error": 0.1}, {"dev": 0.68, "error": 0.03}])
    {'dev': 0.68, 'error': 0.03}
    """
    top = kept = history[0]
    for row in history[1:]:
        if row["dev"] > top["dev"]:
            top = kept = row
        elif row.get("error", -1.0) >= top["dev"] - row["dev"]:
            kept = row
    return kept


def _adafactor(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """AdaFactor (Shazeer and Stern, 2018) by the rates given: no relative steps, no scaling by the parameter's size.

    The one of transformers: torch's scales by the parameter, and would move centroids far less than the encoder.
    """
    from transformers.optimization import Adafactor

    # Its steps start at a rate, which every step sets anew.
    made: torch.optim.Optimizer = Adafactor(
        groups, lr=1e-3, relative_step=False, scale_parameter=False, warmup_init=False
    )
    return made


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
