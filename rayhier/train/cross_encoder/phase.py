"""Training of a cross-encoder on groups of documents: it learns the answer, and a cheap teacher's scores."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.arrays import Ints
from rayhier.model.cross_encoder import CrossEncoder
from rayhier.spec.cross_encoder import MOST_PAIRS, CrossEncoderSpec
from rayhier.train.cross_encoder.groups import Group, Groups
from rayhier.train.group import WorkerGroup
from rayhier.train.loop import Descent, Learner

PASS = 1_000
"""Groups in a pass: a longer epoch is several passes, with checkpoints between them."""
CPU_PAIRS = 64
"""Pairs whose activations are in memory at a time, on a CPU."""


@dataclass(frozen=True)
class Recipe:
    """Numbers of a cross-encoder's training."""

    epochs: int
    batch_size: int = 16
    """Groups in a training step, of all workers together."""
    lr: float = 1e-4
    """Highest learning rate: it rises in the first tenth of the steps, then falls to zero."""
    teacher: float = 0.5
    """Weight of the Kullback-Leibler divergence from the teacher."""
    most_pairs: int = MOST_PAIRS
    seed: int = 0


Measure = Callable[[CrossEncoder], dict[str, float]]


def group_loss(score_D: Tensor, teacher_D: Tensor, weight: float) -> Tensor:
    """Compute the loss of a group's scores [d], the answer's first: cross-entropy + weight · KL(teacher ‖ model).

    >>> group_loss(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0]), 0.5)
    tensor(0.6931)
    """
    log_D, teacher_log_D = F.log_softmax(score_D, dim=0), F.log_softmax(teacher_D, dim=0)
    return -log_D[0] + weight * F.kl_div(log_D, teacher_log_D, reduction="sum", log_target=True)


class Reading:
    """The training phase of a cross-encoder on groups of a query, its answer and wrong documents, from several corpora.

    A pass is an epoch, or a part of a long one.
    """

    def __init__(
        self,
        model: CrossEncoder,
        corpora: Sequence[Groups],
        spec: CrossEncoderSpec,
        training: Recipe,
        measure: Measure,
        dtype: torch.dtype = torch.float32,
        group: WorkerGroup | None = None,
    ) -> None:
        """Prepare to train; the transformer computes in `dtype`, while weights and optimizer stay float32.

        `measure` is a function from the model to its measures on dev.
        """
        self.model, self.corpora, self.spec, self.training = model, list(corpora), spec, training
        self.dtype, self._measure = dtype, measure
        self.learner = Learner({"model": model}, (training.lr,), group, Descent(warm_up=0.1, clip=1.0))
        self.groups = sum(min(len(corpus), training.most_pairs) for corpus in self.corpora)
        self.parts = max(1, -(-self.groups // PASS))
        self.epochs = training.epochs * self.parts
        self.measure_every = self.parts

    def run_pass(self, epoch: int) -> dict[str, float]:
        """Run one pass on every worker; returns the mean loss of its groups as `loss_total`."""
        number, part = divmod(epoch, self.parts)
        chosen = np.array_split(self._order(number), self.parts)[part]
        steps = np.array_split(chosen, max(1, -(-len(chosen) // self.training.batch_size)))
        total = 0.0
        self.model.train()
        for step, rows in enumerate(steps):
            done = (epoch + (step + 0.5) / len(steps)) / self.epochs
            total += self._step(rows, [self.training.seed, epoch, step], done)
        self.model.eval()
        return {"loss_total": total / max(1, len(chosen))}

    def measure(self) -> dict[str, float]:
        """Measure the model on dev: measures by name on the first worker; empty on the others."""
        return self._measure(self.model.eval()) if self.learner.group.rank == 0 else {}

    def finish(self) -> None:
        """Set the model to evaluation mode, ready to score."""
        self.model.eval()

    def _order(self, epoch: int) -> Ints:
        """Return the numbers of pairs, over all corpora, in an epoch's random order; of a large corpus only a part."""
        generator = np.random.default_rng([self.training.seed, epoch])
        begin, chosen = 0, []
        for corpus in self.corpora:
            chosen.append(begin + generator.permutation(len(corpus))[: self.training.most_pairs])
            begin += len(corpus)
        return generator.permutation(np.concatenate(chosen))

    def _step(self, row_G: Ints, seed: list[int], done: float) -> float:
        """Take one step on the groups of pairs numbered `row_G`; returns the sum of losses over all workers."""
        workers = self.learner.group
        share = workers.shares(row_G)[workers.rank]
        torch.manual_seed(int(np.random.default_rng([*seed, workers.rank]).integers(2**31)))  # for dropout
        groups = self._drawn(share, seed)
        losses: list[float] = []

        def backward() -> None:
            size = 1 + max((len(group.documents) for group in groups), default=1)
            most = max(1, CPU_PAIRS // size) if self._device.type == "cpu" else len(groups) or 1
            for start in range(0, len(groups), most):
                loss = self._loss(groups[start : start + most])
                (loss / len(row_G)).backward()  # type: ignore[no-untyped-call]
                losses.append(float(loss.detach()))

        # Gradients are summed piece by piece, so that few activations are in memory; the loss given here is 0.
        self.learner.step(torch.zeros((), requires_grad=True), done, backward)
        return float(workers.sum(sum(losses)))

    def _drawn(self, row_G: Ints, seed: list[int]) -> list[Group]:
        """Draw the groups of pairs numbered over all corpora; a pair's draw does not depend on the worker."""
        groups, begin = [], 0
        for corpus in self.corpora:
            part_G = row_G[(row_G >= begin) & (row_G < begin + len(corpus))]
            for row in part_G.tolist():
                groups += corpus.draw(np.array([row - begin]), np.random.default_rng([*seed, row]))
            begin += len(corpus)
        return groups

    def _loss(self, groups: Sequence[Group]) -> Tensor:
        """Compute the sum of the losses of groups that are read together."""
        queries = [group.query for group in groups for _ in group.documents]
        items = [text for group in groups for text in group.documents]
        tokens = self.model.tokenise(queries, items, self.spec.max_length)
        with self._arithmetic():
            score_X = self.model(self.model.padded(tokens).to(self._device))
        scores = torch.split(score_X, [len(group.documents) for group in groups])
        return torch.stack(
            [
                group_loss(score_D, torch.from_numpy(group.teacher_D).to(score_D), self.training.teacher)
                for score_D, group in zip(scores, groups, strict=True)
            ]
        ).sum()

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _arithmetic(self) -> AbstractContextManager[object]:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self.dtype)
