"""EHI's training loop: plain torch, one process or several that share each batch.

Everything random follows from (seed, epoch), and `save` holds everything that changes, so that a run that was
killed goes on as if it had not been. The first worker mines and measures; the kept state is the best on dev so far.
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

from rayhier.cluster.kmeans import nearest
from rayhier.model.ehi import EhiRouter
from rayhier.model.losses import Batch, Losses, ehi_losses
from rayhier.model.router import route_all
from rayhier.search.lists import Ints, LeafLists
from rayhier.spec.router import EhiSpec
from rayhier.spec.train import TrainSpec
from rayhier.storage.columns import Floats
from rayhier.train.caching import encode
from rayhier.train.examples import Examples, batches
from rayhier.train.group import Group
from rayhier.train.negatives import draw, mine
from rayhier.train.tower import Side, Tower
from rayhier.train.warm import warm_start

STATE = "state.safetensors"
ENCODED_AT_ONCE = 65_536
LOSSES = ("semantic", "indexing", "intra_leaf", "total")


@dataclass(frozen=True)
class Snapshot:
    """The index that encoder and router would make now."""

    router: EhiRouter
    document_NM: Floats
    """Trained vectors."""
    dev_QM: Floats
    """The same of the dev queries."""
    lists: LeafLists

    def leaves(self, vector_QM: Floats, beam: int) -> Ints:
        """Leaves [q, beam] of trained vectors [q, m]."""
        return route_all(self.router, torch.from_numpy(vector_QM), beam)[0].numpy()


Measure = Callable[[Snapshot], dict[str, float]]
"""Dev measures of a snapshot; `dev`, higher is better, picks the best."""


class Trainer:
    """Tower, router, optimizer, and where they are in the run."""

    def __init__(
        self,
        tower: Tower,
        examples: Examples,
        router: EhiSpec,
        spec: TrainSpec,
        seed: int,
        measure: Measure,
        group: Group | None = None,
    ) -> None:
        self.tower, self.examples, self.spec, self.seed, self.measure = tower, examples, spec, seed, measure
        self.group = group or Group()
        n, m = examples.document_NM.shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            branching = round(router.leaves(n) ** (1 / router.height))
            self.router = EhiRouter(m, branching, router.height, router.residual)
        if router.warm_start == "kmeans" and self.group.rank == 0:
            warm_start(self.router, examples.document_NM, seed)
        self.router.to(tower.device)
        encoder_parameters = [p for p in tower.module.parameters() if p.requires_grad]
        self.parameters = [*encoder_parameters, *self.router.parameters()]
        self.group.copy_from_first(self.parameters)
        groups = [
            {"params": encoder_parameters, "lr": spec.encoder_lr},
            {"params": list(self.router.parameters()), "lr": spec.router_lr},
        ]
        self.optimizer = torch.optim.AdamW(groups)
        self.known = examples.known()
        self.mined = np.full((len(examples.pair_P2), spec.hard_negatives.top), -1, dtype=np.int64)
        self.epoch = 0
        self.started = False
        self.history: list[dict[str, float]] = []
        """Of the first worker, as the next."""
        self.best: dict[str, Tensor] = {}
        self._now: Snapshot | None = None

    @property
    def finished(self) -> bool:
        """Whether every epoch is done."""
        return self.started and self.epoch >= self.spec.epochs

    def start(self) -> dict[str, float] | None:
        """Measure the untrained index: epoch 0 of the history."""
        self.started = True
        return self._note({})

    def run_epoch(self) -> dict[str, float] | None:
        """One pass over the pairs; returns what the history notes of it, on the first worker, if it is measured."""
        hard = self.spec.hard_negatives
        if hard.source != "none" and hard.unit == "epochs" and self.epoch % hard.refresh == 0:
            self._mine()
        steps = batches(len(self.examples.pair_P2), self.spec.batch_size, self.seed, self.epoch)
        generator = np.random.default_rng([self.seed, self.epoch, 1])
        sums = torch.zeros(len(LOSSES), device=self.tower.device)
        for number, rows in enumerate(steps):
            done = self.epoch * len(steps) + number
            if hard.source != "none" and hard.unit == "steps" and done % hard.refresh == 0:
                self._mine()
            losses = self._step(rows, draw(self.mined[rows], generator))
            sums += torch.stack([getattr(losses, name).detach() for name in LOSSES])
        self.epoch += 1
        means = (self.group.sum(sums) / len(steps)).tolist()
        return self._note({f"loss_{name}": value for name, value in zip(LOSSES, means, strict=True)})

    def snapshot(self) -> Snapshot:
        """The index as it stands; whole on the first worker, without rows on the others."""
        if self._now is None:
            self._now = self._snapshot()
        return self._now

    def _snapshot(self) -> Snapshot:
        document_NM, dev_QM = self._encode_all("document"), self._encode_all("dev")
        leaves = route_all(self.router, torch.from_numpy(document_NM), 1)[0][:, 0].numpy()
        lists = LeafLists(document_NM, leaves, self.router.n_leaves, self.examples.copies)
        return Snapshot(self.router, document_NM, dev_QM, lists)

    def restore_best(self) -> None:
        """On the first worker, go back to the state that measured best on dev."""
        self._load(self.best)

    # One step

    def _step(self, rows: Ints, hard_N: Ints) -> Losses:
        self.optimizer.zero_grad()
        batch, finish = self._batch(rows, hard_N)
        losses = ehi_losses(batch, self.spec.loss)
        losses.total.backward()  # type: ignore[no-untyped-call]
        finish()
        self.group.sum_gradients(self.parameters)
        self.optimizer.step()
        self._now = None
        return losses

    def _batch(self, rows: Ints, hard_D: Ints) -> tuple[Batch, Callable[[], None]]:
        """A worker's share of a batch, and what to call after the backward pass."""
        query_D, document_D = self.examples.pair_P2[rows].T
        shares = self.group.shares(np.arange(len(rows)))
        own = shares[self.group.rank]
        hard_N = hard_D[own]
        has_hard = bool((hard_D >= 0).any())
        asks: list[tuple[Side, Ints]] = [("query", query_D[own]), ("document", document_D[own])]
        asks += [("document", np.maximum(hard_N, 0))] if has_hard else []
        (query_NM, positive_NM, *hard), finish = encode(self.tower, asks, self.spec.micro_batch)
        positive_NT = self.router.path_embedding(positive_NM)
        both = self.group.gather(torch.cat([positive_NM, positive_NT], dim=1), [len(share) for share in shares])
        document_DM, document_DT = torch.split(both, [positive_NM.shape[1], positive_NT.shape[1]], dim=1)
        negative_ND = torch.from_numpy(~self.known.among(query_D[own], document_D))
        device = self.tower.device
        batch = Batch(
            query_NM=query_NM,
            positive_NM=positive_NM,
            hard_NM=hard[0] if hard else None,
            hard_N=torch.from_numpy(hard_N >= 0).to(device),
            query_NT=self.router.path_embedding(query_NM),
            positive_NT=positive_NT,
            document_DM=document_DM,
            document_DT=document_DT,
            negative_ND=negative_ND.to(device),
            pairs=self.group.sum(float(negative_ND.sum())).to(device),
            hard=torch.tensor(int((hard_D >= 0).sum()), device=device),
        )
        return batch, finish

    def _mine(self) -> None:
        """Hard negatives of every pair, found by the first worker."""
        now = self.snapshot()
        query_QM = self._encode_all("query")
        if self.group.rank == 0:
            self.mined = self._mined(now, query_QM)
        mined = torch.from_numpy(self.mined).to(self.tower.device)
        self.group.copy_from_first([mined])
        self.mined = mined.cpu().numpy()

    def _mined(self, now: Snapshot, query_QM: Floats) -> Ints:
        hard = self.spec.hard_negatives
        query_P, document_P = self.examples.pair_P2.T

        def search(part: slice, k: int) -> Ints:
            vectors = query_QM[query_P[part]]
            if hard.source == "exact":
                return np.asarray(nearest(vectors, now.document_NM, k)[0])
            if hard.source == "query_leaves":
                leaves = now.leaves(vectors, hard.beam)
            else:
                leaves = now.leaves(now.document_NM[document_P[part]], 1)
            return now.lists.search(vectors, leaves, k)[1]

        return mine(search, query_P, self.known, hard.top)

    def _encode_all(self, side: Side) -> Floats:
        """Trained vectors [n, m] of a whole side: each worker its share of every stretch; none but on the first."""
        n = self.tower.size(side)
        m = self.examples.document_NM.shape[1]
        found = np.empty((n if self.group.rank == 0 else 0, m), dtype=np.float32)
        for begin in range(0, n, ENCODED_AT_ONCE):
            rows = np.arange(begin, min(begin + ENCODED_AT_ONCE, n))
            shares = self.group.shares(rows)
            part = self.tower.infer(side, shares[self.group.rank])
            whole = self.group.join(part, [len(share) for share in shares])
            if self.group.rank == 0:
                found[rows] = whole.float().cpu().numpy()
        return found

    # What lasts

    def _note(self, losses: dict[str, float]) -> dict[str, float] | None:
        if self.epoch % self.spec.measure_every and self.epoch < self.spec.epochs:
            return None
        now = self.snapshot()
        if self.group.rank > 0:
            return None
        row = {"epoch": float(self.epoch), **losses, **self.measure(now)}
        if not self.history or row["dev"] > max(past["dev"] for past in self.history):
            self.best = self._state()
        self.history.append(row)
        return row

    def _learned(self) -> dict[str, Tensor]:
        """Everything that learns, by name."""
        parts = {"encoder": self.tower.module, "router": self.router}
        return {
            f"{part}.{name}": value
            for part, module in parts.items()
            for name, value in module.named_parameters()
            if value.requires_grad
        }

    def _state(self) -> dict[str, Tensor]:
        return {name: value.detach().cpu().clone() for name, value in self._learned().items()}

    def save(self, folder: Path) -> None:
        """Write everything that changes into one safetensors file."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {**self._state(), "mined": torch.from_numpy(self.mined)}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items()}
        position = json.dumps({"epoch": self.epoch, "history": self.history})
        tensors = {name: tensor.cpu().clone().contiguous() for name, tensor in tensors.items()}
        save_file(tensors, folder / STATE, metadata={"position": position})

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote."""
        with safe_open(folder / STATE, framework="pt") as saved:
            tensors = {name: saved.get_tensor(name) for name in saved.keys()}  # noqa: SIM118
            position: dict[str, Any] = json.loads(saved.metadata()["position"])
        self.epoch, self.history = position["epoch"], position["history"]
        self.started = bool(self.history)
        self.mined = tensors.pop("mined").numpy()
        self._load(tensors)
        self.best = {name.removeprefix("best."): value for name, value in tensors.items() if name.startswith("best.")}
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, number, field = name.split(".")
                state.setdefault(int(number), {})[field] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})

    @torch.no_grad()
    def _load(self, tensors: dict[str, Tensor]) -> None:
        self._now = None
        for name, value in self._learned().items():
            value.copy_(tensors[name])
