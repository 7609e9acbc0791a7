"""A taught router's second half: leaves from k-means of trained vectors, then queries learn which hold their answers.

The first worker makes the leaves and the lessons and hands them round; every step's lessons are shared.
"""

import numpy as np
import torch
from torch import Tensor

from rayhier.evaluate.balance import balance
from rayhier.model.taught import TaughtRouter, reach_loss
from rayhier.search.lists import Ints
from rayhier.spec import JobSpec
from rayhier.spec.train import Teaching
from rayhier.train.contrast import Contrast
from rayhier.train.examples import Examples, batches, spans
from rayhier.train.group import Group
from rayhier.train.lessons import Lessons
from rayhier.train.loop import Loop, fall
from rayhier.train.settle import empty_router, leaf_sizes, make_router, settle

AT_ONCE = 1024


class Teacher(Loop):
    """Epochs over lessons; `lessons` and `dev` are read on the first worker alone."""

    def __init__(
        self,
        router: TaughtRouter,
        leaf_NR: Ints,
        lessons: Lessons,
        dev: Lessons,
        spec: Teaching,
        seed: int,
        group: Group | None = None,
        *,
        epochs: int | None = None,
    ) -> None:
        self.router, self.spec, self.seed = router, spec, seed
        self.sizes = leaf_sizes(leaf_NR, router.n_leaves)
        self.dev = dev
        self.dev_PR = torch.from_numpy(leaf_NR[dev.pair_P2[:, 1]])
        super().__init__({"router": router}, (spec.lr,), spec.epochs if epochs is None else epochs, 1, group)
        self.group.copy_from_first(router.buffers())
        device = router.device
        self.vector_TM = self._hand(torch.from_numpy(lessons.vector_TM), device)
        self.leaf_PR = self._hand(torch.from_numpy(leaf_NR[lessons.pair_P2[:, 1]]), device)
        self.weight_P = self._hand(torch.from_numpy(lessons.weight_P), device)
        begin_T = np.searchsorted(lessons.pair_P2[:, 0], np.arange(len(lessons.vector_TM) + 1))
        self.begin_T = self._hand(torch.from_numpy(begin_T), device).cpu().numpy()

    def _hand(self, tensor: Tensor, device: torch.device) -> Tensor:
        """The first worker's tensor, on every worker."""
        shape, kind = self.group.agree((tuple(tensor.shape), tensor.dtype))
        here = tensor.to(device) if self.group.rank == 0 else torch.empty(shape, dtype=kind, device=device)
        self.group.copy_from_first([here])
        return here

    def _epoch(self) -> dict[str, float]:
        steps = batches(len(self.vector_TM), self.spec.batch_size, self.seed, self.epoch)
        total = torch.zeros((), device=self.router.device)
        for number, rows in enumerate(steps):
            fall(self.optimizer, (self.spec.lr,), (self.epoch + number / len(steps)) / self.epochs)
            total += self._step(rows)
        return {"loss_total": float(self.group.sum(total) / len(steps))}

    def _step(self, lesson_B: Ints) -> Tensor:
        """One step; returns this worker's share of the loss."""
        self.optimizer.zero_grad()
        weight = max(float(self.weight_P[_pairs(self.begin_T, lesson_B)[1]].sum()), 1e-9)
        own_B = self.group.shares(lesson_B)[self.group.rank]
        row_P, pair_P = _pairs(self.begin_T, own_B)
        row_P, leaf_PR, weight_P = row_P.to(self.router.device), self.leaf_PR[pair_P], self.weight_P[pair_P]
        loss = torch.zeros((), device=self.router.device)
        for level, log_p_BC in enumerate(self.router.log_probs(self.vector_TM[own_B]), start=1):
            node_PR = leaf_PR // self.router.branching ** (self.router.height - level)
            loss = loss + reach_loss(log_p_BC, row_P, node_PR, weight_P) / weight
        loss.backward()  # type: ignore[no-untyped-call]
        self.group.sum_gradients(self.parameters)
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def _measured(self) -> dict[str, float]:
        """`dev`: the geometric mean probability that a dev query gives to the leaves of its answer."""
        if self.group.rank > 0:
            return {}
        dev, total = self.dev, 0.0
        begin_T = np.searchsorted(dev.pair_P2[:, 0], np.arange(len(dev.vector_TM) + 1))
        for begin in range(0, len(dev.vector_TM), AT_ONCE):
            rows = np.arange(begin, min(begin + AT_ONCE, len(dev.vector_TM)))
            row_P, pair_P = _pairs(begin_T, rows)
            log_p_BL = self.router.log_probs(torch.from_numpy(dev.vector_TM[rows]).to(self.router.device))[-1].cpu()
            total += float(reach_loss(log_p_BL, row_P, self.dev_PR[pair_P], torch.from_numpy(dev.weight_P)[pair_P]))
        return {"dev": float(np.exp(-total / dev.weight_P.sum())), **balance(self.sizes)}

    def calibrate(self) -> None:
        """Tell the router, at the end, how dense the leaves of dev queries' answers are; on the first worker."""
        query_P = torch.from_numpy(self.dev.pair_P2[:, 0])
        self.router.calibrate(torch.from_numpy(self.dev.vector_TM), query_P, self.dev_PR)

    def _changed(self) -> None:
        self.router.finish()


def _pairs(begin_T: Ints, lesson_B: Ints) -> tuple[Tensor, Tensor]:
    """Of some lessons' pairs: the place of each's lesson among them, and the pair."""
    begin, end = begin_T[lesson_B], begin_T[lesson_B + 1]
    return torch.from_numpy(np.repeat(np.arange(len(lesson_B)), end - begin)), torch.from_numpy(spans(begin, end))


def build_teacher(
    spec: JobSpec, contrast: Contrast, examples: Examples, dev_P2: Ints, *, sampled: bool = False
) -> Teacher:
    """The teacher that follows a contrast: leaves, lessons and dev (query row, document row) of its trained vectors.

    Where no query is judged it teaches nothing: documents as queries are unlike queries, and a router that learns from
    them alone visits half as many documents again (docs/LOG.md); k-means order stands. The documents may be
    `sampled` from more, which the leaves are for.
    """
    group, seed = contrast.group, contrast.seed
    n, m = examples.document_NM.shape
    own = spec.router.model_copy(update={"residual": "none"}) if examples.same else spec.router
    epochs = 0 if examples.same else None
    document_NM, query_QM, dev_QM = contrast.documents(), contrast.side("query"), contrast.side("dev")
    if group.rank > 0:
        router = empty_router(own, n, m, seed).to(contrast.tower.device)
        none = Lessons.none(m)
        return Teacher(router, np.zeros((0, 1), np.int64), none, none, spec.train.teaching, seed, group, epochs=epochs)
    router = make_router(own, document_NM, seed, sampled=sampled).to(contrast.tower.device)
    leaf_NR = settle(router, document_NM, spec, seed, sampled=sampled)
    lessons = Lessons.none(m)
    if not examples.same:
        lessons = Lessons.of(examples, query_QM, document_NM, spec.train.teaching, seed)
    dev = Lessons.asked(dev_QM, dev_P2)
    return Teacher(router, leaf_NR, lessons, dev, spec.train.teaching, seed, group, epochs=epochs)
