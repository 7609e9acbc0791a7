"""Epochs over pairs of a query and its document, each with a mined hard negative: what contrast and joint share."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from rayhier.search.lists import Ints
from rayhier.spec.train import Training, TrainSpec
from rayhier.storage.columns import Floats
from rayhier.train.examples import Examples, batches
from rayhier.train.group import Group
from rayhier.train.loop import Loop
from rayhier.train.negatives import Search, draw, mine
from rayhier.train.tower import Side, Tower
from rayhier.train.whole import encode_all


class PairLoop(Loop):
    """A tower that learns from pairs; the first worker mines for all."""

    def __init__(
        self,
        tower: Tower,
        examples: Examples,
        spec: TrainSpec,
        seed: int,
        training: Training,
        modules: Mapping[str, nn.Module],
        rates: Sequence[float],
        group: Group | None,
    ) -> None:
        self.tower, self.examples, self.spec, self.seed, self.training = tower, examples, spec, seed, training
        super().__init__(modules, rates, spec.passes(training), spec.measure_every, group)
        self.known = examples.known()
        self.mined = np.full((len(examples.pair_P2), spec.hard_negatives.top), -1, dtype=np.int64)

    @abstractmethod
    def _search(self) -> Search:
        """How hard negatives are found now; called by every worker, and what it returns by the first."""

    def side(self, side: Side) -> Floats:
        """Trained vectors of a side on the first worker; none on the others."""
        return encode_all(self.tower, side, self.examples.document_NM.shape[1], self.group)

    def _pair_steps(self) -> Iterator[tuple[float, Ints, Ints]]:
        """Of each step of this epoch: the share of the run that is done, rows of pairs, their hard negatives or -1."""
        hard = self.spec.hard_negatives
        if hard.source != "none" and hard.unit == "epochs" and self.epoch % hard.refresh == 0:
            self._mine()
        steps = batches(len(self.examples.pair_P2), self.spec.pairs_a_step(self.training), self.seed, self.epoch)
        generator = np.random.default_rng([self.seed, self.epoch, 1])
        for number, rows in enumerate(steps):
            done = self.epoch * len(steps) + number
            if hard.source != "none" and hard.unit == "steps" and done % hard.refresh == 0:
                self._mine()
            yield done / (self.epochs * len(steps)), rows, draw(self.mined[rows], generator)

    def _mine(self) -> None:
        """Hard negatives of every pair, found by the first worker."""
        search = self._search()
        if self.group.rank == 0:
            self.mined = mine(search, self.examples.pair_P2[:, 0], self.known, self.spec.hard_negatives.top)
        mined = torch.from_numpy(self.mined).to(self.tower.device)
        self.group.copy_from_first([mined])
        self.mined = mined.cpu().numpy()

    def _kept(self) -> dict[str, Tensor]:
        return {"mined": torch.from_numpy(self.mined)}

    def _took(self, tensors: Mapping[str, Tensor]) -> None:
        self.mined = tensors["mined"].numpy()
