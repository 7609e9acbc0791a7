"""The encoder of a taught router: contrast alone, no index in sight, so that exact search is as good as it gets.

InfoNCE over the batch's documents and the mined hard negatives of all its queries, those known to be relevant left out
(van den Oord et al., "Representation Learning with Contrastive Predictive Coding", 2018; ANCE's negatives).
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.cluster.kmeans import nearest
from rayhier.search.lists import Ints
from rayhier.spec.train import TrainSpec
from rayhier.storage.columns import Floats
from rayhier.train.caching import encode
from rayhier.train.examples import Examples
from rayhier.train.group import Group
from rayhier.train.loop import fall
from rayhier.train.negatives import Search
from rayhier.train.pairs import PairLoop
from rayhier.train.tower import Side, Tower

Measure = Callable[[Floats, Floats], dict[str, float]]
"""Trained vectors of documents [n, m] and dev queries [q, m] -> measures; `dev`, higher is better, picks the best."""


class Contrast(PairLoop):
    """A tower that learns to bring queries to their documents."""

    def __init__(
        self,
        tower: Tower,
        examples: Examples,
        spec: TrainSpec,
        seed: int,
        measure: Measure,
        group: Group | None = None,
    ) -> None:
        self.measure = measure
        super().__init__(tower, examples, spec, seed, "taught", {"encoder": tower.module}, (spec.encoder_lr,), group)
        self._documents: Floats | None = None

    def documents(self) -> Floats:
        """Trained vectors of all documents on the first worker; none on the others."""
        if self._documents is None:
            self._documents = self.side("document")
        return self._documents

    def _epoch(self) -> dict[str, float]:
        losses = []
        for done, rows, hard_N in self._pair_steps():
            fall(self.optimizer, (self.spec.encoder_lr,), done)
            losses.append(self._step(rows, hard_N).detach())
        return {"loss_total": float(self.group.sum(torch.stack(losses).sum()) / len(losses))}

    def _step(self, rows: Ints, hard_N: Ints) -> Tensor:
        self.optimizer.zero_grad()
        query_N, document_N = self.examples.pair_P2[rows].T
        column_C = np.concatenate([document_N, hard_N[hard_N >= 0]])
        queries, columns = self.group.shares(query_N), self.group.shares(column_C)
        own = self.group.rank
        asks: list[tuple[Side, Ints]] = [("query", queries[own]), ("document", columns[own])]
        (query_NM, own_CM), finish = encode(self.tower, asks, self.spec.micro_batch)
        column_CM = self.group.gather(own_CM, [len(share) for share in columns])
        # A query's own document is the target; other relevant ones are neither positive nor negative.
        target_N = self.group.shares(np.arange(len(rows)))[own]
        spared_NC = self.known.among(queries[own], column_C)
        spared_NC[np.arange(len(target_N)), target_N] = False
        device = self.tower.device
        scores_NC = query_NM @ column_CM.T / self.spec.temperature
        scores_NC = scores_NC.masked_fill(torch.from_numpy(spared_NC).to(device), -torch.inf)
        target = torch.from_numpy(target_N).to(device)
        loss: Tensor = F.cross_entropy(scores_NC, target, reduction="sum") / len(rows)
        loss.backward()  # type: ignore[no-untyped-call]
        finish()
        self.group.sum_gradients(self.parameters)
        self.optimizer.step()
        self._changed()
        return loss

    def _search(self) -> Search:
        document_NM, query_QM = self.documents(), self.side("query")
        query_P = self.examples.pair_P2[:, 0]
        return lambda part, k: np.asarray(nearest(query_QM[query_P[part]], document_NM, k)[0])

    def _measured(self) -> dict[str, float]:
        document_NM, dev_QM = self.documents(), self.side("dev")
        return self.measure(document_NM, dev_QM) if self.group.rank == 0 else {}

    def _changed(self) -> None:
        self._documents = None
