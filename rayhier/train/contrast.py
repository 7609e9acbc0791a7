"""Contrastive training of the encoder without an index, for the best exact search. HCE's training shares most."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Floats, Ints
from rayhier.cluster.neighbours import Neighbours
from rayhier.spec.train import ContrastTraining, InfoNce
from rayhier.train.batch import Anchor, LossTerm, PairBatch, total_loss
from rayhier.train.dev_measures import DevMeasured, error_to_best
from rayhier.train.examples import Examples
from rayhier.train.loop import Learner, Phase
from rayhier.train.pairs import Pairs, Search
from rayhier.train.tower import Tower

Measure = Callable[[Floats, Floats], DevMeasured]
Draw = tuple[float, Ints, np.random.Generator]
"""Share of training that is done, numbers of the pairs in a step, and the step's random generator."""


class EncoderPhase(Phase, ABC):
    """Base of phases that train an encoder for exact search; a subclass gives the loss of a step."""

    def __init__(
        self,
        tower: Tower,
        examples: Examples,
        spec: InfoNce,
        epochs: int,
        seed: int,
        measure: Measure,
        learner: Learner,
    ) -> None:
        self.tower, self.examples, self.seed, self._measure = tower, examples, seed, measure
        self.learner, self.epochs, self.measure_every = learner, epochs, spec.between(epochs)
        learner.kept["top"] = torch.zeros(0, dtype=torch.float64)
        self.anchor = spec.anchor
        self.pairs = Pairs(tower, examples, spec.hard_negatives, spec.batch_size, epochs, seed, learner)
        self._documents: tuple[int, Floats] | None = None

    @abstractmethod
    def parts(self, rows: Ints, generator: np.random.Generator) -> list[LossTerm]: ...

    def steps(self, epoch: int) -> Iterator[Draw]:
        return self.pairs.steps(epoch, self.search)

    def documents(self) -> Floats:
        """Encode all documents [n, m] with the current weights."""
        if self._documents is None or self._documents[0] != self.learner.version:
            self._documents = self.learner.version, self.pairs.side("document")
        return self._documents[1]

    def run_pass(self, epoch: int) -> dict[str, float]:
        losses = [self.step(rows, generator, done).detach() for done, rows, generator in self.steps(epoch)]
        return {"loss_total": float(self.learner.group.sum(torch.stack(losses).sum()) / len(losses))}

    def step(self, rows: Ints, generator: np.random.Generator, done: float = 0.0) -> Tensor:
        return self.take([*self.parts(rows, generator), *self.anchors(len(rows), generator)], done)

    def take(self, parts: Sequence[LossTerm], done: float = 0.0) -> Tensor:
        loss, backward = total_loss(self.tower, parts)
        self.learner.step(loss, done, backward)
        return loss

    def anchors(self, count: int, generator: np.random.Generator) -> Sequence[LossTerm]:
        if not self.anchor:
            return []
        row_N = generator.integers(0, len(self.examples.document_NM), count)
        base_NM = torch.from_numpy(self.examples.document_NM[row_N]).float()
        return [Anchor(self.learner.group, row_N, base_NM, self.anchor)]

    def search(self) -> Search:
        documents, query_QM = Neighbours(self.documents()), self.pairs.side("query")
        query_P = self.examples.pair_P2[:, 0]
        return lambda part, k: documents.search(query_QM[query_P[part]], k)[0]

    def measure(self) -> dict[str, float]:
        measured = self._measure(self.documents(), self.pairs.side("dev"))
        error = error_to_best(measured, self.learner.kept)
        return {"dev": measured.dev, "error": error, **measured.values}


class Contrast(EncoderPhase):
    def __init__(self, tower: Tower, examples: Examples, spec: ContrastTraining, seed: int, measure: Measure) -> None:
        learner = Learner({"encoder": tower.module}, (spec.encoder_lr,))
        super().__init__(tower, examples, spec, spec.passes(len(examples.pair_P2)), seed, measure, learner)
        self.spec = spec

    def parts(self, rows: Ints, generator: np.random.Generator) -> list[LossTerm]:
        return [self.batch(rows, self.pairs.drawn(rows, self.spec.hard_negatives.per_query, generator))]

    def batch(self, rows: Ints, mined_X: Ints) -> PairBatch:
        group, known = self.learner.group, self.pairs.known
        return PairBatch(group, known, "query", self.examples.pair_P2[rows], mined_X, self.spec.temperature)
