"""Train the encoder for exact search: a query tells its answer from negatives. HCE's training is a subclass."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Floats, Ints
from rayhier.cluster.neighbours import Neighbours
from rayhier.spec.train import InfoNce
from rayhier.train.batch import Anchor, LossTerm, PairBatch, total_loss
from rayhier.train.dev_measures import Measure, error_to_best
from rayhier.train.examples import Examples, batches
from rayhier.train.loop import Learner, Phase
from rayhier.train.pairs import Pairs, Search
from rayhier.train.pseudo import PseudoPairs, own_answers
from rayhier.train.tower import Tower

Draw = tuple[float, Ints, np.random.Generator]
"""Share of training that is done, numbers of the pairs in a step, and the step's random generator."""
PSEUDO_WEIGHT = 0.5
"""Weight α of pseudo-queries in the loss, if there are judged pairs. Judged pairs have weight 1."""


class Contrast(Phase):
    """Training by pairs of queries and documents, and by pairs of pseudo-queries and documents (`pseudo`)."""

    def __init__(
        self,
        tower: Tower,
        examples: Examples,
        pseudo: PseudoPairs | None,
        spec: InfoNce,
        seed: int,
        measure: Measure,
        learner: Learner | None = None,
    ) -> None:
        self.tower, self.examples, self.pseudo, self.spec, self.seed = tower, examples, pseudo, spec, seed
        self.learner, self._measure = learner or Learner({"encoder": tower.module}, (spec.encoder_lr,)), measure
        self.judged = len(examples.pair_P2) > 0
        self.epochs = spec.passes(len(examples.pair_P2) if self.judged or pseudo is None else len(pseudo.rows))
        self.measure_every = spec.between(self.epochs)
        self.learner.kept["top"] = torch.zeros(0, dtype=torch.float64)
        self.pairs = Pairs(
            tower, examples, spec.hard_negatives.source, spec.batch_size, self.epochs, seed, self.learner
        )
        if pseudo is not None:
            self.own = own_answers(len(examples.document_NM), examples.result_N)
        self._documents: tuple[int, Floats] | None = None

    @property
    def teaches(self) -> bool:
        return self.judged or self.pseudo is not None

    def term(self, pairs: PairBatch) -> LossTerm:
        return pairs

    def parts(self, rows: Ints, generator: np.random.Generator) -> list[LossTerm]:
        if self.pseudo is not None and not self.judged:
            return [self._pseudo_term(self.pseudo, self.pseudo.rows[rows], 1.0, generator)]
        mined_X = self.pairs.drawn(rows, self.spec.hard_negatives.per_query, generator)
        parts = [self.term(self.batch(rows, mined_X))]
        if self.pseudo is not None:
            count = min(len(rows), len(self.pseudo.rows))
            drawn = np.asarray(generator.choice(self.pseudo.rows, count, replace=False, shuffle=False))
            parts.append(self._pseudo_term(self.pseudo, drawn, PSEUDO_WEIGHT, generator))
        return parts

    def batch(self, rows: Ints, mined_X: Ints) -> PairBatch:
        group, known = self.learner.group, self.pairs.known
        return PairBatch(group, known, "query", self.examples.pair_P2[rows], mined_X, self.spec.temperature)

    def _pseudo_term(
        self, pseudo: PseudoPairs, document_N: Ints, weight: float, generator: np.random.Generator
    ) -> LossTerm:
        pairs_N2, none_X = np.stack([document_N, document_N], axis=1), np.empty(0, np.int64)
        chosen_N, group = pseudo.chosen(document_N, generator), self.learner.group
        return self.term(
            PairBatch(group, self.own, "pseudo", pairs_N2, none_X, self.spec.temperature, chosen_N, weight)
        )

    def steps(self, epoch: int) -> Iterator[Draw]:
        return self.pairs.steps(epoch, self.search) if self.judged else self._pseudo_steps(epoch)

    def _pseudo_steps(self, epoch: int) -> Iterator[Draw]:
        documents = 0 if self.pseudo is None else len(self.pseudo.rows)
        steps = batches(documents, self.spec.batch_size, self.seed, epoch)
        generator = np.random.default_rng([self.seed, epoch, 1])
        for number, rows in enumerate(steps):
            yield (epoch + number / len(steps)) / self.epochs, rows, generator

    def documents(self) -> Floats:
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
        if not self.spec.anchor:
            return []
        row_N = generator.integers(0, len(self.examples.document_NM), count)
        base_NM = torch.from_numpy(self.examples.document_NM[row_N]).float()
        return [Anchor(self.learner.group, row_N, base_NM, self.spec.anchor)]

    def search(self) -> Search:
        documents, query_QM = Neighbours(self.documents()), self.pairs.side("query")
        query_P = self.examples.pair_P2[:, 0]
        return lambda part, k: documents.search(query_QM[query_P[part]], k)[0]

    def measure(self) -> dict[str, float]:
        measured = self._measure(self.documents(), self.pairs.side("dev"))
        error = error_to_best(measured, self.learner.kept)
        return {"dev": measured.dev, "error": error, **measured.values}
