"""A taught router's second half: leaves from k-means of trained vectors, then queries learn which hold their answers.

The first worker makes the leaves and the lessons and hands them round; every step's lessons are shared.
"""

import numpy as np
import torch
from torch import Tensor

from rayhier.cluster.kmeans import spherical_kmeans
from rayhier.cluster.siblings import siblings
from rayhier.cluster.spill import CANDIDATES, Spill, gaps, second_leaves
from rayhier.evaluate.balance import balance
from rayhier.model.router import place_all
from rayhier.model.taught import SCALE, TaughtRouter, reach_loss
from rayhier.search.lists import Ints
from rayhier.spec import JobSpec
from rayhier.spec.router import EhiSpec
from rayhier.spec.train import Teaching
from rayhier.storage.columns import Floats
from rayhier.train.contrast import Contrast
from rayhier.train.examples import Examples, batches, spans
from rayhier.train.group import Group
from rayhier.train.lessons import Lessons
from rayhier.train.loop import Loop, fall

AT_ONCE = 1024
AUCTIONS, EVEN, PRICE = 20, 1.2, 0.02
"""Rounds at most, the imbalance that is even enough, and what twice the mean costs a round, in cosine."""
SAMPLE = 256
"""Documents a leaf whose crowding is watched."""


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
        self.begin_T = self._hand(torch.from_numpy(begin_T), torch.device("cpu")).numpy()

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

    def restore_best(self) -> None:
        """The best state on dev, with its screen."""
        super().restore_best()
        self.router.finish()


def _pairs(begin_T: Ints, lesson_B: Ints) -> tuple[Tensor, Tensor]:
    """Of some lessons' pairs: the place of each's lesson among them, and the pair."""
    begin, end = begin_T[lesson_B], begin_T[lesson_B + 1]
    return torch.from_numpy(np.repeat(np.arange(len(lesson_B)), end - begin)), torch.from_numpy(spans(begin, end))


def build_teacher(spec: JobSpec, contrast: Contrast, examples: Examples, dev_P2: Ints) -> Teacher:
    """The teacher that follows a contrast: leaves, lessons and dev (query row, document row) of its trained vectors.

    Where no query is judged it teaches nothing: documents as queries are unlike queries, and a router that learns from
    them alone visits half as many documents again (docs/LOG.md); k-means order stands.
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
    router = make_router(own, document_NM, seed).to(contrast.tower.device)
    leaf_NR = settle(router, document_NM, spec, seed)
    lessons = Lessons.none(m)
    if not examples.same:
        lessons = Lessons.of(examples, query_QM, document_NM, spec.train.teaching, seed)
    dev = Lessons.asked(dev_QM, dev_P2)
    return Teacher(router, leaf_NR, lessons, dev, spec.train.teaching, seed, group, epochs=epochs)


def make_router(spec: EhiSpec, document_NM: Floats, seed: int) -> TaughtRouter:
    """A router that is k-means IVF of these documents [n, m]."""
    n, m = document_NM.shape
    branching = round(spec.leaves(n) ** (1 / spec.height))
    router = empty_router(spec, n, m, seed)
    centroid_LM = spherical_kmeans(document_NM, router.n_leaves, seed)
    centroid_LM = centroid_LM[siblings(centroid_LM, branching, spec.height, seed)]
    # 20 x cosine, also where vectors are longer than 1.
    length = float(np.linalg.norm(document_NM[:: max(1, n // 10_000)], axis=1).mean())
    router.begin(torch.from_numpy(centroid_LM), SCALE / length)
    return router


def empty_router(spec: EhiSpec, documents: int, dimension: int, seed: int) -> TaughtRouter:
    """The same before it knows any document."""
    branching = round(spec.leaves(documents) ** (1 / spec.height))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        screen = min(spec.screened(documents), dimension)
        return TaughtRouter(dimension, branching, spec.height, spec.bend_rank(documents), screen)


def settle(router: TaughtRouter, document_NM: Floats, spec: JobSpec, seed: int) -> Ints:
    """The leaves [n, r] of documents, first leaf first, as even as prices make them; the router learns their sizes.

    A leaf that is fuller than the mean becomes dearer and an emptier one cheaper, as in an auction, until imbalance is
    low; documents at its border go elsewhere. Prices, and how near a border documents have a second leaf, are found on
    a sample and stay with the router, so that every document is placed by itself, now or later.
    """
    n, leaves, spill = len(document_NM), spec.leaves_per_document, spec.index.second_leaf
    rows = np.random.default_rng([seed, 3]).permutation(n)[: SAMPLE * router.n_leaves]
    sample_NM = document_NM if len(rows) == n else document_NM[np.sort(rows)]
    for auction in range(AUCTIONS + 1):
        if leaves > 1:
            router.border.fill_(_border(router, sample_NM, spec.index.spilled))
        sizes = leaf_sizes(place(router, sample_NM, leaves, spill), router.n_leaves)
        if balance(sizes)["imbalance"] <= EVEN or auction == AUCTIONS:
            break
        crowding_L = np.clip(sizes / sizes.mean() - 1, -0.5, 2).astype(np.float32)
        router.price_L += PRICE * torch.from_numpy(crowding_L).to(router.device)
    leaf_NR = place(router, document_NM, leaves, spill)
    router.log_size_L.copy_(torch.from_numpy(np.log(leaf_sizes(leaf_NR, router.n_leaves) + 0.5)))
    return leaf_NR


def _border(router: TaughtRouter, document_NM: Floats, share: float) -> float:
    """How near to a border this share of the documents lies, in cosine after price."""
    near_N2 = place_all(router, torch.from_numpy(document_NM), 2)[0].numpy()
    centroid_LM, price_L = (cell.cpu().numpy() for cell in (router.centroid_LM, router.price_L))
    return float(np.quantile(gaps(document_NM, near_N2, centroid_LM, price_L), share))


def place(router: TaughtRouter, document_NM: Floats, leaves: int, spill: Spill) -> Ints:
    """The leaves [n, r] where documents belong, first leaf first; again the first where there is no second."""
    count = 1 if leaves == 1 else min(CANDIDATES, router.n_leaves)
    leaf_NC = place_all(router, torch.from_numpy(document_NM), count)[0].numpy()
    if leaves == 1:
        return leaf_NC
    cells = router.cells
    centroid_LM, price_L = cells.centroid_LM.cpu().numpy(), cells.price_L.cpu().numpy()
    second_N = second_leaves(document_NM, leaf_NC, centroid_LM, spill, price_L, cells.border)
    return np.stack([leaf_NC[:, 0], leaf_NC[np.arange(len(leaf_NC)), second_N]], axis=1)


def leaf_sizes(leaf_NR: Ints, n_leaves: int) -> Ints:
    """Documents in each leaf; one in the same leaf twice counts once.

    >>> leaf_sizes(np.array([[0, 1], [1, 1]]), 3)
    array([1, 2, 0])
    """
    sizes = np.bincount(leaf_NR[:, 0], minlength=n_leaves)
    for rank in range(1, leaf_NR.shape[1]):
        other = leaf_NR[(leaf_NR[:, :rank] != leaf_NR[:, rank : rank + 1]).all(axis=1), rank]
        sizes = sizes + np.bincount(other, minlength=n_leaves)
    return sizes
