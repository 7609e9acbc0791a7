"""Train a learned IVF's router after the encoder, to choose the leaves that hold the answers of queries."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.arrays import Floats, Ints
from rayhier.cluster.neighbours import Neighbours
from rayhier.dataset.balance import balance
from rayhier.model.learned_ivf import LearnedIvfRouter, reach_loss
from rayhier.spec import JobSpec
from rayhier.spec.router import LearnedIvfRouting
from rayhier.spec.router.learned_ivf import DOCUMENTS_A_QUERY, EPOCHS, MOST_ASKING
from rayhier.train.contrast import Contrast
from rayhier.train.examples import Examples, batches, ranges
from rayhier.train.group import WorkerGroup
from rayhier.train.learned_ivf.kmeans_start import leaf_sizes, make_router, settle
from rayhier.train.loop import Learner, Phase

BATCH, RATE = 256, 1e-3
"""Number of texts in a step, and the first learning rate."""
NEIGHBOURS = 10
"""Number of a query's exact nearest documents that count as answers, in addition to its judged answers."""
JUDGED, OF_DOCUMENTS = 10.0, 0.1
"""Weights in the loss. A nearest neighbour of a query has weight 1, and a judged answer has weight JUDGED. If a
document is used as a query, the document and its neighbours are the answers. Each has weight OF_DOCUMENTS."""
MOST_JUDGED = 10
"""Largest number of judged answers of a query that each have the full weight. More answers share the weight of this
number."""

MEASURED = 1 << 24
"""Approximate largest number of densities, of dev pairs and leaves, that are in memory at a time."""
FITTED = 1_024
"""Largest number of targets from which the leaves' first scale is fitted."""
LEAST, MOST, THIRDS = 0.02, 50.0, 16
"""Least and greatest factor of the leaves' first weights, and rounds of the ternary search between these factors."""


@dataclass(frozen=True)
class Targets:
    """Vectors [t, m] of queries, and pairs (query row, document row) of their answers, sorted, with weights [p]."""

    vector_TM: Floats
    pair_P2: Ints
    weight_P: Floats

    @classmethod
    def none(cls, dimension: int) -> Self:
        return cls(np.zeros((0, dimension), np.float32), np.zeros((0, 2), np.int64), np.zeros(0, np.float32))

    @classmethod
    def judged(cls, query_QM: Floats, pair_P2: Ints) -> Self:
        """Make targets of a router from queries' vectors and judged pairs [p, 2] of rows. Each query has weight 1."""
        pairs = pair_P2[np.argsort(pair_P2[:, 0], kind="stable")]
        return cls(query_QM, pairs, (1 / np.bincount(pairs[:, 0])[pairs[:, 0]]).astype(np.float32))

    @classmethod
    def of(cls, examples: Examples, query_QM: Floats, document_NM: Floats, seed: int) -> Self:
        """Make targets from trained vectors of queries [q, m] and of a sample of the documents [n, m].

        Answers of a query are its judged and its exact nearest documents. Answers of a document are the document and
        its exact nearest documents.
        """
        most = min(MOST_ASKING, DOCUMENTS_A_QUERY * len(query_QM))
        rows = np.random.default_rng([seed, 2]).permutation(len(document_NM))[:most]
        vector_TM = np.concatenate([query_QM, document_NM[rows]]).astype(np.float32, copy=False)
        judged_P2, count_P = examples.pair_P2, np.bincount(examples.pair_P2[:, 0])[examples.pair_P2[:, 0]]
        judged_P = (JUDGED * np.minimum(1.0, MOST_JUDGED / count_P)).astype(np.float32)
        documents = Neighbours(document_NM)
        near_TK, _ = WorkerGroup().spread(lambda vector_SM: documents.search(vector_SM, NEIGHBOURS), vector_TM)
        near_P2 = np.stack([np.repeat(np.arange(len(near_TK)), near_TK.shape[1]), near_TK.reshape(-1)], axis=1)
        near_P = np.ones(len(near_P2), np.float32)
        itself_P2 = np.stack([np.arange(len(query_QM), len(vector_TM)), rows], axis=1)
        near_P[near_P2[:, 0] >= len(query_QM)] = OF_DOCUMENTS
        # A document is usually its own nearest document, but not always among copies or by dot products.
        itself_P2 = itself_P2[~np.isin(_keys(itself_P2, len(document_NM)), _keys(near_P2, len(document_NM)))]
        pair_P2 = np.concatenate([judged_P2, near_P2, itself_P2])
        weight_P = np.concatenate([judged_P, near_P, np.full(len(itself_P2), OF_DOCUMENTS, np.float32)])
        order = np.argsort(pair_P2[:, 0], kind="stable")
        return cls(vector_TM, pair_P2[order], weight_P[order])


def _keys(pair_P2: Ints, documents: int) -> Ints:
    return pair_P2[:, 0] * documents + pair_P2[:, 1]


class RouterPhase(Phase):
    def __init__(self, router: LearnedIvfRouter, leaf_NR: Ints, targets: Targets, dev: Targets, seed: int) -> None:
        """Prepare to train a router whose documents lie in leaves [n, r]. All workers use the first worker's leaves."""
        self.router, self.seed = router, seed
        self.sizes = leaf_sizes(leaf_NR, router.n_leaves)
        self.dev = dev
        self.dev_PR = torch.from_numpy(leaf_NR[dev.pair_P2[:, 1]])
        self.learner = Learner({"router": router}, (RATE,))
        self.learner.group.copy_from_first(router.buffers())
        device = router.device
        self.vector_TM = self._hand(torch.from_numpy(targets.vector_TM), device)
        self.leaf_PR = self._hand(torch.from_numpy(leaf_NR[targets.pair_P2[:, 1]]), device)
        self.weight_P = self._hand(torch.from_numpy(targets.weight_P), device)
        begin_T = np.searchsorted(targets.pair_P2[:, 0], np.arange(len(targets.vector_TM) + 1))
        self.begin_T = self._hand(torch.from_numpy(begin_T), device).cpu().numpy()
        self.epochs, self.measure_every = EPOCHS if len(self.vector_TM) else 0, 1

    def _hand(self, tensor: Tensor, device: torch.device) -> Tensor:
        group = self.learner.group
        shape, kind = group.agree((tuple(tensor.shape), tensor.dtype))
        copied = tensor.to(device) if group.rank == 0 else torch.empty(shape, dtype=kind, device=device)
        group.copy_from_first([copied])
        return copied

    def run_pass(self, epoch: int) -> dict[str, float]:
        steps = batches(len(self.vector_TM), BATCH, self.seed, epoch)
        total = torch.zeros((), device=self.router.device)
        for number, rows in enumerate(steps):
            total += self.step(rows, (epoch + number / len(steps)) / self.epochs)
        return {"loss_total": float(self.learner.group.sum(total) / len(steps))}

    def step(self, target_B: Ints, done: float = 0.0) -> Tensor:
        group = self.learner.group
        weight = max(float(self.weight_P[_pairs(self.begin_T, target_B)[1]].sum()), 1e-9)
        share_B = group.shares(target_B)[group.rank]
        row_P, pair_P = _pairs(self.begin_T, share_B)
        row_P, leaf_PR, weight_P = row_P.to(self.router.device), self.leaf_PR[pair_P], self.weight_P[pair_P]
        log_p_BL = self.router.log_probs(self.vector_TM[share_B])
        loss = reach_loss(log_p_BL, row_P, leaf_PR, weight_P) / weight
        self.learner.step(loss, done)
        return loss.detach()

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Measure the mean factor by which the router saves visits on dev: all rows / rows visited until an answer."""
        if self.learner.group.rank > 0:
            return {}
        dev, total = self.dev, 0.0
        size_L = torch.from_numpy(self.sizes).float()
        begin_T = np.searchsorted(dev.pair_P2[:, 0], np.arange(len(dev.vector_TM) + 1))
        densities = max(len(dev.vector_TM), len(dev.pair_P2)) * len(size_L)
        for row_B in np.array_split(np.arange(len(dev.vector_TM)), math.ceil(densities / MEASURED) or 1):
            row_P, pair_P = _pairs(begin_T, row_B)
            log_p_BL = self.router.log_probs(torch.from_numpy(dev.vector_TM[row_B]).to(self.router.device))
            density_PL = (log_p_BL - self.router.log_size_L).cpu()[row_P]
            reached_P1 = density_PL.gather(1, self.dev_PR[pair_P]).max(dim=1, keepdim=True).values
            visited_P = (density_PL >= reached_P1).float() @ size_L
            weight_P = torch.from_numpy(dev.weight_P)[pair_P]
            total += float((weight_P * torch.log(size_L.sum() / visited_P.clamp(min=1))).sum())
        return {"dev": float(np.exp(total / max(dev.weight_P.sum(), 1e-9))), **balance(self.sizes)}


@torch.no_grad()
def fit_scale(router: LearnedIvfRouter, targets: Targets, leaf_NR: Ints) -> None:
    """Scale the weights by the factor that makes the leaves of the targets' answers most probable.

    Otherwise training spends its steps on the scale, the inverse of Guo et al.'s temperature ("On Calibration of Modern
    Neural Networks", 2017). The order of leaves does not change.
    """
    if not len(targets.vector_TM):
        return
    begin_T = np.searchsorted(targets.pair_P2[:, 0], np.arange(len(targets.vector_TM) + 1))
    some_T = np.random.default_rng(0).permutation(len(targets.vector_TM))[:FITTED]
    row_P, pair_P = _pairs(begin_T, some_T)
    y_TM = router.bend(torch.from_numpy(targets.vector_TM[some_T]).to(router.device))
    leaf_PR = torch.from_numpy(leaf_NR[targets.pair_P2[pair_P, 1]]).to(router.device)
    weight_P = torch.from_numpy(targets.weight_P)[pair_P].to(router.device)
    row_P = row_P.to(router.device)
    loss = partial(reach_loss, row_P=row_P, leaf_PR=leaf_PR, weight_P=weight_P)
    router.W.mul_(_scale(loss, y_TM @ router.W.T, router.log_size_L))


def _scale(loss: Callable[[Tensor], Tensor], score_TC: Tensor, prior_C: Tensor) -> float:
    def at(log_factor: float) -> float:
        return float(loss(F.log_softmax(math.exp(log_factor) * score_TC + prior_C, dim=1)))

    low, high = math.log(LEAST), math.log(MOST)
    for _ in range(THIRDS):
        first, second = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, second) if at(first) <= at(second) else (first, high)
    return math.exp((low + high) / 2)


def _pairs(begin_T: Ints, target_B: Ints) -> tuple[Tensor, Tensor]:
    begin, end = begin_T[target_B], begin_T[target_B + 1]
    return torch.from_numpy(np.repeat(np.arange(len(target_B)), end - begin)), torch.from_numpy(ranges(begin, end))


def build_router_phase(
    spec: JobSpec,
    router: LearnedIvfRouting,
    trained: Contrast,
    examples: Examples,
    dev_P2: Ints,
) -> RouterPhase:
    """Make the phase that trains a learned IVF's router by the trained encoder's vectors.

    `dev_P2` are judged pairs (dev query row, document row). Without judged queries k-means remains, because a router
    that learns from documents alone visits 50% more documents (docs/results/LOG.md).
    """
    group, seed = trained.learner.group, trained.pairs.seed
    m = examples.document_NM.shape[1]
    document_NM, query_QM, dev_QM = trained.documents(), trained.pairs.side("query"), trained.pairs.side("dev")
    begun = make_router(router, document_NM, seed, group.each).to(trained.tower.device)
    leaf_NR, targets = settle(begun, document_NM, spec, seed, group.each), Targets.none(m)
    if not examples.same:
        targets = Targets.of(examples, query_QM, document_NM, seed)
        fit_scale(begun, targets, leaf_NR)
    return RouterPhase(begun, leaf_NR, targets, Targets.judged(dev_QM, dev_P2), seed)
