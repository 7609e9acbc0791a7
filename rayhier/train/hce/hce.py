"""HCE's training: an encoder learns to tell a query's answer from its siblings in a document tree.

"Hierarchical Corpus Encoder: Fusing Generative Retrieval and Dense Indices", Algorithms 1-3.
"""

from collections.abc import Iterator

import numpy as np

from rayhier.arrays import Ints
from rayhier.model.hce import Hierarchy
from rayhier.spec.train import HceTraining
from rayhier.train.contrast.batch import PairBatch, Part
from rayhier.train.encoder import Draw, EncoderPhase, Measure
from rayhier.train.examples import Examples, batches
from rayhier.train.group import WorkerGroup
from rayhier.train.hce.batch import TreeBatch
from rayhier.train.hce.pseudo import PseudoPairs, own_answers
from rayhier.train.hce.training_tree import TrainingTree
from rayhier.train.loop import Descent, Learner
from rayhier.train.tower import Tower

PSEUDO_WEIGHT = 0.5
"""Weight of pseudo-queries in the loss, α, where judged pairs have weight 1."""


class Hce(EncoderPhase):
    """The training phase of HCE: an encoder and the centroids of a tree of documents learn from pairs."""

    def __init__(
        self,
        tower: Tower,
        examples: Examples,
        pseudo: PseudoPairs | None,
        spec: HceTraining,
        seed: int,
        measure: Measure,
        group: WorkerGroup | None = None,
    ) -> None:
        """Prepare to train by the judged pairs of `examples`, by pseudo-queries (`pseudo`; None: none), or by both."""
        n, m = examples.document_NM.shape
        counts = spec.tree.counts(n)
        self.hierarchy = Hierarchy(counts[: spec.tree.told_apart(n)], m).to(tower.device)
        modules = {"encoder": tower.module, "hierarchy": self.hierarchy}
        descent = Descent("adafactor" if spec.form == "paper" else "adamw")
        learner = Learner(modules, (spec.encoder_lr, spec.encoder_lr), group, descent)
        self.spec, self.pseudo, self.judged = spec, pseudo, len(examples.pair_P2) > 0
        units = len(examples.pair_P2) if self.judged or pseudo is None else len(pseudo.rows)
        super().__init__(tower, examples, spec, spec.passes(units), seed, measure, learner)
        self.own = own_answers(n, examples.copies)
        self.training_tree = TrainingTree(learner, self.hierarchy, counts, n)

    @property
    def levels(self) -> list[int]:
        """Levels of the tree; below an answer's node at each, further negatives are drawn (Eq. 7).

        They are the lowest level whose nodes the loss tells apart, and for form `paper` all levels below it too.
        """
        lowest = len(self.hierarchy)
        return [lowest] if self.spec.form == "single" else list(range(lowest, len(self.training_tree.counts) + 1))

    def steps(self, epoch: int) -> Iterator[Draw]:
        """Yield the steps of a pass over the judged pairs, or without these over documents with pseudo-queries."""
        if not self.training_tree.version:
            self.plant()
        generator = np.random.default_rng([self.seed, epoch, 2])
        self.below = [self.training_tree.below(level, generator) for level in self.levels]
        return self.pairs.steps(epoch, self.search) if self.judged else self._pseudo_steps(epoch)

    def _pseudo_steps(self, epoch: int) -> Iterator[Draw]:
        documents = 0 if self.pseudo is None else len(self.pseudo.rows)
        steps = batches(documents, self.spec.batch_size, self.seed, epoch)
        generator = np.random.default_rng([self.seed, epoch, 1])
        for number, rows in enumerate(steps):
            yield (epoch + number / len(steps)) / self.epochs, rows, generator

    def parts(self, rows: Ints, generator: np.random.Generator) -> list[Part]:
        """Make the terms of a step's loss: judged pairs numbered `rows`, and as many documents with pseudo-queries."""
        if self.pseudo is not None and not self.judged:
            return [self._pseudo_batch(self.pseudo, self.pseudo.rows[rows], 1.0, generator)]
        mined_X = self.pairs.drawn(rows, self.spec.hard_negatives.per_query, generator)
        parts: list[Part] = [self.batch(rows, mined_X)]
        if self.pseudo is not None:
            drawn = _some(self.pseudo.rows, len(rows), generator)
            parts.append(self._pseudo_batch(self.pseudo, drawn, PSEUDO_WEIGHT, generator))
        return parts

    def batch(self, rows: Ints, mined_X: Ints) -> TreeBatch:
        """Make the loss term of the judged pairs numbered `rows`; documents at rows `mined_X` are further negatives."""
        group, known = self.learner.group, self.pairs.known
        pairs = PairBatch(group, known, "query", self.examples.pair_P2[rows], mined_X, self.spec.temperature)
        return self._told(pairs, 1.0)

    def _pseudo_batch(
        self, pseudo: PseudoPairs, document_N: Ints, weight: float, generator: np.random.Generator
    ) -> TreeBatch:
        none_X, asked_N = np.empty(0, np.int64), pseudo.chosen(document_N, generator)
        pairs_N2 = np.stack([document_N, document_N], axis=1)
        pairs = PairBatch(
            self.learner.group, self.own, "pseudo", pairs_N2, none_X, self.spec.temperature, asked_N=asked_N
        )
        return self._told(pairs, weight)

    def _told(self, pairs: PairBatch, weight: float) -> TreeBatch:
        """Add negatives near the answers, and the loss of the tree's nodes, to a batch of pairs."""
        spec = self.spec
        siblings = [below.siblings(pairs.query_N, pairs.document_N, pairs.known, spec.siblings) for below in self.below]
        paper = spec.form == "paper"
        return TreeBatch(pairs, self.training_tree, siblings, 1.0 if paper else spec.hierarchy, weight, both=paper)

    def measure(self) -> dict[str, float]:
        """Measure exact search on dev; then build the tree, the first time and whenever a new tree is due."""
        before = self.learner.kept["top"]
        measures = super().measure()
        recluster, improved = self.spec.tree.recluster, self.learner.kept["top"] is not before
        if not self.training_tree.version or recluster == "every" or (recluster == "improved" and improved):
            self.plant()
        return measures

    def plant(self) -> None:
        """Build the tree anew from the documents' current vectors."""
        self.training_tree.plant(self.documents(), self.spec.tree.children(len(self.examples.document_NM)), self.seed)


def _some(row_D: Ints, count: int, generator: np.random.Generator) -> Ints:
    return np.asarray(generator.choice(row_D, min(count, len(row_D)), replace=False, shuffle=False))
