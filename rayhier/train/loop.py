"""What every training has in common: epochs, the best on dev so far, and all that a checkpoint must hold.

Everything random follows from (seed, epoch), so that a run that was killed goes on as if it had not been. The first
worker measures and remembers; the others only share the work.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from rayhier.train.group import Group


class Loop(ABC):
    """Epochs over modules that learn, by name; `rates` are their learning rates (AdamW)."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        rates: Sequence[float],
        epochs: int,
        measure_every: int,
        group: Group | None = None,
    ) -> None:
        self.modules, self.epochs, self.measure_every = dict(modules), epochs, measure_every
        self.group = group or Group()
        self.parameters = list(self._learned().values())
        self.group.copy_from_first(self.parameters)
        own = [[p for p in module.parameters() if p.requires_grad] for module in self.modules.values()]
        groups = [{"params": params, "lr": rate} for params, rate in zip(own, rates, strict=True)]
        self.optimizer = torch.optim.AdamW(groups)
        self.epoch = 0
        self.started = False
        self.history: list[dict[str, float]] = []
        """Of the first worker, as the next."""
        self.best: dict[str, Tensor] = {}

    @abstractmethod
    def _epoch(self) -> dict[str, float]:
        """One pass; what the history notes of it, on every worker."""

    @abstractmethod
    def _measured(self) -> dict[str, float]:
        """Measures of the state as it is, on the first worker; `dev`, higher is better, picks the best."""

    @abstractmethod
    def _changed(self) -> None:
        """Called whenever other weights were put in place: what follows from them is to be made again."""

    def _kept(self) -> dict[str, Tensor]:
        """What else a checkpoint holds."""
        return {}

    def _took(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on with what `_kept` gave."""
        if tensors:
            raise ValueError(f"a checkpoint holds {', '.join(tensors)}, which this training does not know")

    @property
    def finished(self) -> bool:
        """Whether every epoch is done."""
        return self.started and self.epoch >= self.epochs

    def start(self) -> dict[str, float] | None:
        """Measure the untrained state: epoch 0 of the history."""
        self.started = True
        return self._note({})

    def run_epoch(self) -> dict[str, float] | None:
        """One pass; returns what the history notes of it, on the first worker, if it is measured."""
        noted = self._epoch()
        self.epoch += 1
        return self._note(noted)

    def restore_best(self) -> None:
        """Go back to the state that measured best on dev, which the first worker knows."""
        if self.group.rank == 0:
            self._load(self.best)
        self.group.copy_from_first(self.parameters)
        self._changed()

    def _note(self, losses: dict[str, float]) -> dict[str, float] | None:
        if self.epoch % self.measure_every and self.epoch < self.epochs:
            return None
        measured = self._measured()
        if self.group.rank > 0:
            return None
        row = {"epoch": float(self.epoch), **losses, **measured}
        if not self.history or row["dev"] > max(past["dev"] for past in self.history):
            self.best = self._state()
        self.history.append(row)
        return row

    def _learned(self) -> dict[str, Tensor]:
        """Everything that learns, by name."""
        return {
            f"{part}.{name}": value
            for part, module in self.modules.items()
            for name, value in module.named_parameters()
            if value.requires_grad
        }

    def _state(self) -> dict[str, Tensor]:
        return {name: value.detach().cpu().clone() for name, value in self._learned().items()}

    def save(self, path: Path) -> None:
        """Write everything that changes into one safetensors file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = self._state() | {f"kept.{name}": tensor for name, tensor in self._kept().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
        position = json.dumps({"epoch": self.epoch, "started": self.started, "history": self.history})
        tensors = {name: tensor.cpu().clone().contiguous() for name, tensor in tensors.items()}
        save_file(tensors, path, metadata={"position": position})

    def load(self, path: Path) -> None:
        """Go on from what `save` wrote."""
        with safe_open(path, framework="pt") as saved:
            tensors = {name: saved.get_tensor(name) for name in saved.keys()}  # noqa: SIM118
            position: dict[str, Any] = json.loads(saved.metadata()["position"])
        self.epoch, self.started, self.history = (position[name] for name in ("epoch", "started", "history"))
        self._load(tensors)
        self.best = _below("best.", tensors)
        self._took(_below("kept.", tensors))
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in _below("optimizer.", tensors).items():
            number, _, field = name.partition(".")
            state.setdefault(int(number), {})[field] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})

    @torch.no_grad()
    def _load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, value in self._learned().items():
            value.copy_(tensors[name])
        self._changed()


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def fall(optimizer: torch.optim.Optimizer, rates: Sequence[float], share_done: float) -> None:
    """Set learning rates that fall to zero over the run."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * (1 - share_done)
