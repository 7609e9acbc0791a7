"""Train a cross-encoder on groups of documents, to pick the answer and to reproduce a cheap teacher's scores."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.arrays import Floats, Ints
from rayhier.dataset.measures import Judge
from rayhier.dataset.queries import Queries
from rayhier.dataset.ranking import Ranking, take
from rayhier.model.cross_encoder import CrossEncoder
from rayhier.spec.cross_encoder import MOST_PAIRS, CrossEncoderSpec
from rayhier.train.cross_encoder.groups import TrainingGroup, TrainingGroups
from rayhier.train.loop import Descent, Learner, Phase

MEASURE = "nDCG@10"
DEPTH, QUERIES = 50, 200
"""Number of documents that are re-ranked for a dev query, and most dev queries."""
Read = Callable[[Sequence[tuple[str, str]]], Floats]
PASS = 1_000
"""Largest number of groups in a pass. An epoch with more groups has several passes, with checkpoints between passes."""
CPU_PAIRS = 64


BATCH, TEACHER, SEED = 16, 0.5, 0
"""BATCH: groups of a step. TEACHER: weight in the loss of the divergence from the teacher."""
RATE = 1e-4
"""Highest learning rate. The rate rises in the first tenth of the steps, then falls to zero."""
Measure = Callable[[CrossEncoder], dict[str, float]]


def group_loss(score_D: Tensor, teacher_D: Tensor, weight: float) -> Tensor:
    """Compute the loss of a group's scores [d], the answer's first: cross-entropy + weight · KL(teacher ‖ model).

    >>> group_loss(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0]), 0.5)
    tensor(0.6931)
    """
    log_D, teacher_log_D = F.log_softmax(score_D, dim=0), F.log_softmax(teacher_D, dim=0)
    return -log_D[0] + weight * F.kl_div(log_D, teacher_log_D, reduction="sum", log_target=True)


class Reading(Phase):
    def __init__(
        self,
        model: CrossEncoder,
        groups: TrainingGroups,
        spec: CrossEncoderSpec,
        epochs: int,
        measure: Measure,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.model, self.groups, self.spec = model, groups, spec
        self.dtype, self._measure = dtype, measure
        self.learner = Learner({"model": model}, (RATE,), Descent(warm_up=0.1, clip=1.0))
        self.parts = max(1, -(-min(len(groups), MOST_PAIRS) // PASS))
        self.epochs = epochs * self.parts
        self.measure_every = self.parts

    def run_pass(self, epoch: int) -> dict[str, float]:
        number, part = divmod(epoch, self.parts)
        chosen = np.array_split(self._order(number), self.parts)[part]
        steps = np.array_split(chosen, max(1, -(-len(chosen) // BATCH)))
        total = 0.0
        self.model.train()
        for step, rows in enumerate(steps):
            done = (epoch + (step + 0.5) / len(steps)) / self.epochs
            total += self._step(rows, [SEED, epoch, step], done)
        self.model.eval()
        return {"loss_total": total / max(1, len(chosen))}

    def measure(self) -> dict[str, float]:
        return self._measure(self.model.eval()) if self.learner.group.rank == 0 else {}

    def finish(self) -> None:
        self.model.eval()

    def _order(self, epoch: int) -> Ints:
        generator = np.random.default_rng([SEED, epoch])
        return generator.permutation(generator.permutation(len(self.groups))[:MOST_PAIRS])

    def _step(self, row_G: Ints, seed: list[int], done: float) -> float:
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

        # Gradients are summed piece by piece, so that few activations are in memory. So the loss given here is 0.
        self.learner.step(torch.zeros((), requires_grad=True), done, backward)
        return float(workers.sum(sum(losses)))

    def _drawn(self, row_G: Ints, seed: list[int]) -> list[TrainingGroup]:
        return [
            group
            for row in row_G.tolist()
            for group in self.groups.draw(np.array([row]), np.random.default_rng([*seed, row]))
        ]

    def _loss(self, groups: Sequence[TrainingGroup]) -> Tensor:
        queries = [group.query for group in groups for _ in group.documents]
        items = [text for group in groups for text in group.documents]
        tokens = self.model.tokenise(queries, items, self.spec.max_length)
        with torch.autocast(self._device.type, self.dtype, enabled=self.dtype != torch.float32):
            score_X = self.model(self.model.padded(tokens).to(self._device))
        scores = torch.split(score_X, [len(group.documents) for group in groups])
        return torch.stack(
            [
                group_loss(score_D, torch.from_numpy(group.teacher_D).to(score_D), TEACHER)
                for score_D, group in zip(scores, groups, strict=True)
            ]
        ).sum()

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


class DevReranking:
    def __init__(self, queries: Queries, base: Ranking, text_of: Callable[[Ints], list[str]]) -> None:
        self.judge, self.base = Judge(queries, (MEASURE,)), base
        self.asked_X, self.place_X = np.nonzero(base.row_QK >= 0)
        row_X = base.row_QK[self.asked_X, self.place_X]
        used_U, at_X = np.unique(row_X, return_inverse=True)
        texts = text_of(used_U)
        pairs = zip(self.asked_X.tolist(), at_X.tolist(), strict=True)
        self.pairs = [(queries.texts[query], texts[at]) for query, at in pairs]

    def scores(self, read: Read) -> Floats:
        """Score the base encoder's best documents for each query with `read`: [q, k], -inf for no document."""
        score_QK = np.full(self.base.score_QK.shape, -np.inf, np.float32)
        score_QK[self.asked_X, self.place_X] = read(self.pairs)
        return score_QK

    def measured(self, score_QK: Floats) -> float:
        order_QK = np.argsort(-score_QK, axis=1, kind="stable")
        ranked = replace(self.base, score_QK=take(score_QK, order_QK), row_QK=take(self.base.row_QK, order_QK))
        return self.judge.mean(ranked)[MEASURE]
