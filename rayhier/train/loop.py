"""What every training has in common: modules that learn, epochs, the best on dev so far, and checkpoints of it all.

Everything random follows from (seed, epoch), so that a run that was killed goes on as if it had not been. The first
worker measures and remembers; the others only share the work.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rayhier.train.group import Group


class Learner:
    """Modules that learn together by AdamW, by name, and the workers that share their batches."""

    def __init__(self, modules: Mapping[str, nn.Module], rates: Sequence[float], group: Group | None = None) -> None:
        """Modules, begun on every worker as on the first; `rates` are their learning rates."""
        self.modules, self.rates, self.group = dict(modules), tuple(rates), group or Group()
        self.parameters = list(self.learned().values())
        self.group.copy_from_first(self.parameters)
        own = [[p for p in module.parameters() if p.requires_grad] for module in self.modules.values()]
        groups = [{"params": params, "lr": rate} for params, rate in zip(own, self.rates, strict=True)]
        self.optimizer = torch.optim.AdamW(groups)
        self.version = 0
        """Counts every change of the weights: what was made of them holds as long as it stands still."""
        self.kept: dict[str, Tensor] = {}
        """What a checkpoint holds beside weights."""

    def learned(self) -> dict[str, Tensor]:
        """Every parameter that learns, by name."""
        return {
            f"{part}.{name}": value
            for part, module in self.modules.items()
            for name, value in module.named_parameters()
            if value.requires_grad
        }

    def step(self, loss: Tensor, done: float, backward: Callable[[], None] = lambda: None) -> None:
        """One step down a loss, this worker's share of it, `done` of the run being over: rates fall to zero.

        `backward` goes on where the loss's own backward pass ends, at cached vectors.
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
        """Put weights in place."""
        for name, value in self.learned().items():
            value.copy_(tensors[name])
        self.version += 1

    def share(self) -> None:
        """Take the first worker's weights."""
        self.group.copy_from_first(self.parameters)
        self.version += 1


class Phase(Protocol):
    """What a loop runs."""

    @property
    def learner(self) -> Learner:
        """What learns."""

    @property
    def epochs(self) -> int:
        """Passes in all."""

    @property
    def measure_every(self) -> int:
        """Passes between two measurements; the last is always measured."""

    def run_pass(self, epoch: int) -> dict[str, float]:
        """One pass over the examples, on every worker; what the history notes of it."""

    def measure(self) -> dict[str, float]:
        """Measures of the state as it is, on the first worker; `dev`, higher is better, picks the best."""

    def finish(self) -> None:
        """What is left to do, on every worker, once the best state is back."""


class Loop:
    """The passes of a phase, from wherever a checkpoint left them."""

    def __init__(self, phase: Phase) -> None:
        self.phase, self.learner, self.group = phase, phase.learner, phase.learner.group
        self.epoch = 0
        self.started = False
        self.history: list[dict[str, float]] = []
        """What was noted after each measured pass; on the first worker, as is `best`."""
        self.best: dict[str, Tensor] = {}

    @property
    def ended(self) -> bool:
        """Whether every pass is done."""
        return self.started and self.epoch >= self.phase.epochs

    def start(self) -> dict[str, float] | None:
        """Measure the untrained state: epoch 0 of the history."""
        self.started = True
        return self._note({})

    def run_epoch(self) -> dict[str, float] | None:
        """Run one pass; returns what the history notes of it, on the first worker, if it is measured."""
        losses = self.phase.run_pass(self.epoch)
        self.epoch += 1
        return self._note(losses)

    def restore_best(self) -> None:
        """Go back to the state that measured best on dev, which the first worker knows."""
        if self.group.rank == 0:
            self.learner.load(self.best)
        self.learner.share()

    def _note(self, losses: dict[str, float]) -> dict[str, float] | None:
        if self.epoch % self.phase.measure_every and self.epoch < self.phase.epochs:
            return None
        measures = self.phase.measure()
        if self.group.rank > 0:
            return None
        row = {"epoch": float(self.epoch), **losses, **measures}
        if not self.history or row["dev"] > max(past["dev"] for past in self.history):
            self.best = self.learner.state()
        self.history.append(row)
        return row

    def save(self, path: Path) -> None:
        """Write everything that changes into one safetensors file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = self.learner.state() | {f"kept.{name}": tensor for name, tensor in self.learner.kept.items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for number, state in self.learner.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
        position = json.dumps({"epoch": self.epoch, "started": self.started, "history": self.history})
        tensors = {name: tensor.cpu().clone().contiguous() for name, tensor in tensors.items()}
        save_file(tensors, path, metadata={"position": position})

    def load(self, path: Path) -> None:
        """Go on from what `save` wrote."""
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            position: dict[str, Any] = json.loads(file.metadata()["position"])
        self.epoch, self.started, self.history = (position[name] for name in ("epoch", "started", "history"))
        self.learner.load(tensors)
        self.best = _below("best.", tensors)
        self.learner.kept = _below("kept.", tensors)
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in _below("optimizer.", tensors).items():
            number, _, field = name.partition(".")
            state.setdefault(int(number), {})[field] = value
        optimizer = self.learner.optimizer
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
