"""Contrastive training of the encoder without an index, for the best exact search.

InfoNCE over the batch's documents and the mined hard negatives of all its queries, without known positives (van den
Oord et al., "Representation Learning with Contrastive Predictive Coding", 2018; ANCE's negatives), and a loss that
keeps documents where the base encoder has them (ours).
"""

import numpy as np

from rayhier.arrays import Ints
from rayhier.spec.train import ContrastTraining
from rayhier.train.contrast.batch import PairBatch, Part
from rayhier.train.encoder import EncoderPhase, Measure
from rayhier.train.examples import Examples
from rayhier.train.group import WorkerGroup
from rayhier.train.loop import Learner
from rayhier.train.tower import Tower


class Contrast(EncoderPhase):
    """The training phase of an encoder that brings queries near their documents."""

    def __init__(
        self,
        tower: Tower,
        examples: Examples,
        spec: ContrastTraining,
        seed: int,
        measure: Measure,
        group: WorkerGroup | None = None,
    ) -> None:
        learner = Learner({"encoder": tower.module}, (spec.encoder_lr,), group)
        super().__init__(tower, examples, spec, spec.passes(len(examples.pair_P2)), seed, measure, learner)
        self.spec = spec

    def parts(self, rows: Ints, generator: np.random.Generator) -> list[Part]:
        """Make the terms of a step's loss: the pairs numbered `rows`, with their mined negatives."""
        return [self.batch(rows, self.pairs.drawn(rows, self.spec.hard_negatives.per_query, generator))]

    def batch(self, rows: Ints, mined_X: Ints) -> PairBatch:
        group, known = self.learner.group, self.pairs.known
        return PairBatch(group, known, "query", self.examples.pair_P2[rows], mined_X, self.spec.temperature)
