"""EHI's training loop with a residual head on stored vectors: plain torch, one process.

Everything random follows from (seed, epoch), and `save` holds everything that changes, so that a run that was
killed goes on as if it had not been. The kept state is the best on dev so far.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoder import ResidualHead
from rayhier.model.losses import Batch, Losses, ehi_losses
from rayhier.model.router import route_all
from rayhier.search.lists import Ints, LeafLists
from rayhier.spec.router import EhiSpec
from rayhier.spec.train import TrainSpec
from rayhier.storage.columns import Floats
from rayhier.train.examples import Examples, batches
from rayhier.train.negatives import draw, mine

STATE = "state.safetensors"


@dataclass(frozen=True)
class Snapshot:
    """The index that head and router would make now."""

    head: ResidualHead
    router: EhiRouter
    document_NM: Floats
    """Trained vectors."""
    lists: LeafLists

    def encode(self, query_QM: Floats) -> Floats:
        """Trained vectors [q, m] of base vectors [q, m]."""
        return encode_all(self.head, query_QM)

    def leaves(self, vector_QM: Floats, beam: int) -> Ints:
        """Leaves [q, beam] of trained vectors [q, m]."""
        return route_all(self.router, torch.from_numpy(vector_QM), beam)[0].numpy()


Measure = Callable[[Snapshot], dict[str, float]]
"""Dev measures of a snapshot; `dev`, higher is better, picks the best."""


class Trainer:
    """Head, router, optimizer, and where they are in the run."""

    def __init__(self, examples: Examples, router: EhiSpec, spec: TrainSpec, seed: int, measure: Measure) -> None:
        self.examples, self.spec, self.seed, self.measure = examples, spec, seed, measure
        n, m = examples.document_NM.shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.head = ResidualHead(m)
            branching = round(router.leaves(n) ** (1 / router.height))
            self.router = EhiRouter(m, branching, router.height, router.residual)
        if router.warm_start == "kmeans":
            self.router.warm_start(torch.from_numpy(spherical_kmeans(examples.document_NM, branching, seed)))
        groups = [
            {"params": list(self.head.parameters()), "lr": spec.encoder_lr},
            {"params": list(self.router.parameters()), "lr": spec.router_lr},
        ]
        self.optimizer = torch.optim.AdamW(groups)
        self.known = examples.known()
        self.mined = np.full((len(examples.pair_P2), spec.hard_negatives.top), -1, dtype=np.int64)
        self.epoch = 0
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Tensor] = {}

    @property
    def finished(self) -> bool:
        """Whether every epoch is done."""
        return bool(self.history) and self.epoch >= self.spec.epochs

    def start(self) -> dict[str, float]:
        """Measure the untrained index: epoch 0 of the history."""
        return self._note({})

    def run_epoch(self) -> dict[str, float]:
        """One pass over the pairs; returns what the history notes of it."""
        hard = self.spec.hard_negatives
        if hard.source != "none" and hard.unit == "epochs" and self.epoch % hard.refresh == 0:
            self._mine()
        steps = batches(len(self.examples.pair_P2), self.spec.batch_size, self.seed, self.epoch)
        generator = np.random.default_rng([self.seed, self.epoch, 1])
        sums: dict[str, float] = {}
        for number, rows in enumerate(steps):
            done = self.epoch * len(steps) + number
            if hard.source != "none" and hard.unit == "steps" and done % hard.refresh == 0:
                self._mine()
            losses = self._step(rows, draw(self.mined[rows], generator))
            for name in ("semantic", "indexing", "intra_leaf", "total"):
                sums[name] = sums.get(name, 0.0) + float(getattr(losses, name).detach())
        self.epoch += 1
        return self._note({f"loss_{name}": total / len(steps) for name, total in sums.items()})

    def snapshot(self) -> Snapshot:
        """The index as it stands."""
        vectors = encode_all(self.head, self.examples.document_NM)
        leaves = route_all(self.router, torch.from_numpy(vectors), 1)[0][:, 0].numpy()
        return Snapshot(self.head, self.router, vectors, LeafLists(vectors, leaves, self.router.n_leaves))

    def restore_best(self) -> None:
        """Go back to the state that measured best on dev."""
        _load(self.best, "head", self.head)
        _load(self.best, "router", self.router)

    # One step

    def _step(self, rows: Ints, hard_N: Ints) -> Losses:
        self.optimizer.zero_grad()
        losses = ehi_losses(self._batch(rows, hard_N), self.spec.loss)
        losses.total.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return losses

    def _batch(self, rows: Ints, hard_N: Ints) -> Batch:
        query_N, document_N = self.examples.pair_P2[rows].T
        query_NM = self.head(torch.from_numpy(self.examples.query_QM[query_N]))
        positive_NM = self.head(torch.from_numpy(self.examples.document_NM[document_N]))
        hard_NM = None
        if (hard_N >= 0).any():
            hard_NM = self.head(torch.from_numpy(self.examples.document_NM[np.maximum(hard_N, 0)]))
        return Batch(
            query_NM=query_NM,
            positive_NM=positive_NM,
            hard_NM=hard_NM,
            hard_N=torch.from_numpy(hard_N >= 0),
            query_NT=self.router.path_embedding(query_NM),
            positive_NT=self.router.path_embedding(positive_NM),
            negative_NN=torch.from_numpy(~self.known(query_N[:, None], document_N[None, :])),
        )

    def _mine(self) -> None:
        hard = self.spec.hard_negatives
        now = self.snapshot()
        query_P, document_P = self.examples.pair_P2.T
        query_PM = now.encode(self.examples.query_QM)[query_P]
        if hard.source == "query_leaves":
            leaves_PB = now.leaves(query_PM, hard.beam)
        else:
            leaves_PB = now.leaves(now.document_NM[document_P], 1)
        self.mined = mine(now.lists, query_PM, leaves_PB, query_P, self.known, hard.top)

    # What lasts

    def _note(self, losses: dict[str, float]) -> dict[str, float]:
        row = {"epoch": float(self.epoch), **losses, **self.measure(self.snapshot())}
        if not self.history or row["dev"] > max(past["dev"] for past in self.history):
            self.best = {**_named("head", self.head), **_named("router", self.router)}
        self.history.append(row)
        return row

    def save(self, folder: Path) -> None:
        """Write everything that changes into one safetensors file."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {**_named("head", self.head), **_named("router", self.router), "mined": torch.from_numpy(self.mined)}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
        position = json.dumps({"epoch": self.epoch, "history": self.history})
        tensors = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
        save_file(tensors, folder / STATE, metadata={"position": position})

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote."""
        with safe_open(folder / STATE, framework="pt") as saved:
            tensors = {name: saved.get_tensor(name) for name in saved.keys()}  # noqa: SIM118
            position: dict[str, Any] = json.loads(saved.metadata()["position"])
        self.epoch, self.history = position["epoch"], position["history"]
        self.mined = tensors.pop("mined").numpy()
        _load(tensors, "head", self.head)
        _load(tensors, "router", self.router)
        self.best = {name.removeprefix("best."): value for name, value in tensors.items() if name.startswith("best.")}
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, number, field = name.split(".")
                state.setdefault(int(number), {})[field] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})


@torch.inference_mode()
def encode_all(head: ResidualHead, vectors_NM: Floats, batch: int = 16384) -> Floats:
    """Trained vectors [n, m] of base vectors [n, m], in batches."""
    parts = [head(part) for part in torch.split(torch.from_numpy(vectors_NM), batch)]
    return np.asarray(torch.cat(parts).numpy())


def _named(prefix: str, module: torch.nn.Module) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value.detach().clone() for name, value in module.state_dict().items()}


def _load(tensors: dict[str, Tensor], prefix: str, module: torch.nn.Module) -> None:
    start = f"{prefix}."
    module.load_state_dict({name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)})
