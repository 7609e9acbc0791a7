"""Contrastive training of the encoder without an index, for the best exact search.

InfoNCE over the batch's documents and the mined hard negatives of all its queries, without known positives
(van den Oord et al., "Representation Learning with Contrastive Predictive Coding", 2018; ANCE's negatives).
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.arrays import Floats, Ints
from rayhier.cluster.kmeans import nearest
from rayhier.spec.train import ContrastTraining
from rayhier.train.caching import encode
from rayhier.train.examples import Examples
from rayhier.train.group import WorkerGroup
from rayhier.train.loop import Learner
from rayhier.train.negatives import Search
from rayhier.train.pairs import Pairs
from rayhier.train.tower import Side, Tower

Measure = Callable[[Floats, Floats], dict[str, float]]
"""Trained vectors of documents [n, m] and dev queries [q, m] -> measures; `dev`, higher is better, picks the best."""


class Contrast:
    """Trains a tower to bring queries near their documents."""

    def __init__(
        self,
        tower: Tower,
        examples: Examples,
        spec: ContrastTraining,
        seed: int,
        measure: Measure,
        group: WorkerGroup | None = None,
    ) -> None:
        self.spec, self.tower, self.examples, self._measure = spec, tower, examples, measure
        self.learner = Learner({"encoder": tower.module}, (spec.encoder_lr,), group)
        self.pairs = Pairs(tower, examples, spec, seed, self.learner)
        self.epochs, self.measure_every = spec.epochs, spec.measure_every
        self._documents: tuple[int, Floats] | None = None

    def documents(self) -> Floats:
        """Trained vectors of all documents, on the first worker; an empty array on the others."""
        if self._documents is None or self._documents[0] != self.learner.version:
            self._documents = self.learner.version, self.pairs.side("document")
        return self._documents[1]

    def run_pass(self, epoch: int) -> dict[str, float]:
        """Run one pass over the pairs; returns the mean loss."""
        losses = []
        for done, rows, hard_N in self.pairs.steps(epoch, self.search):
            losses.append(self.step(rows, hard_N, done).detach())
        return {"loss_total": float(self.learner.group.sum(torch.stack(losses).sum()) / len(losses))}

    def step(self, rows: Ints, hard_N: Ints, done: float = 0.0) -> Tensor:
        """Take one step on some pairs and their hard negatives (-1: none); returns this worker's share of the loss."""
        group = self.learner.group
        query_N, document_N = self.examples.pair_P2[rows].T
        column_C = np.concatenate([document_N, hard_N[hard_N >= 0]])
        queries, columns = group.shares(query_N), group.shares(column_C)
        own = group.rank
        asks: list[tuple[Side, Ints]] = [("query", queries[own]), ("document", columns[own])]
        (query_NM, own_CM), backward = encode(self.tower, asks, self.spec.micro_batch)
        column_CM = group.gather(own_CM, [len(share) for share in columns])
        # A query's own document is the target; other relevant ones are neither positive nor negative.
        target_N = group.shares(np.arange(len(rows)))[own]
        spared_NC = self.pairs.known.among(queries[own], column_C)
        spared_NC[np.arange(len(target_N)), target_N] = False
        device = self.tower.device
        scores_NC = query_NM @ column_CM.T / self.spec.temperature
        scores_NC = scores_NC.masked_fill(torch.from_numpy(spared_NC).to(device), -torch.inf)
        target = torch.from_numpy(target_N).to(device)
        loss: Tensor = F.cross_entropy(scores_NC, target, reduction="sum") / len(rows)
        self.learner.step(loss, done, backward)
        return loss

    def search(self) -> Search:
        """Make the search for hard negatives: an exact search with the current encoder."""
        document_NM, query_QM = self.documents(), self.pairs.side("query")
        query_P = self.examples.pair_P2[:, 0]
        return lambda part, k: np.asarray(nearest(query_QM[query_P[part]], document_NM, k)[0])

    def measure(self) -> dict[str, float]:
        """Dev measures of an exact search, on the first worker."""
        document_NM, dev_QM = self.documents(), self.pairs.side("dev")
        return self._measure(document_NM, dev_QM) if self.learner.group.rank == 0 else {}

    def finish(self) -> None:
        """Do nothing: the encoder is final."""
