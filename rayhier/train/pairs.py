"""Steps over training pairs of a query and its document, with mined hard negatives."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from rayhier.arrays import Floats, Ints
from rayhier.spec.train.common import Mining
from rayhier.train.examples import Examples, batches
from rayhier.train.loop import Learner
from rayhier.train.negatives import Search, draw, mine
from rayhier.train.tower import Side, Tower, encode_side


class Pairs:
    """Training pairs divided into steps, with hard negatives that the first worker mines and checkpoints keep."""

    def __init__(
        self, tower: Tower, examples: Examples, hard: Mining, batch_size: int, epochs: int, seed: int, learner: Learner
    ) -> None:
        self.tower, self.examples, self.hard, self.seed, self.learner = tower, examples, hard, seed, learner
        self.batch_size, self.epochs = batch_size, epochs
        self.known = examples.known()
        learner.kept["mined"] = torch.full((len(examples.pair_P2), hard.top), -1, dtype=torch.long)

    @property
    def mined(self) -> Ints:
        """Rows [p, top] of hard negatives of each pair, in the order of the search; -1 where there are fewer."""
        return self.learner.kept["mined"].numpy()

    def side(self, side: Side) -> Floats:
        """Encode all texts of a side, such as queries: [n, m] on the first worker; an empty array on the others."""
        return encode_side(self.tower, side, self.examples.document_NM.shape[1], self.learner.group)

    def steps(self, epoch: int, search: Callable[[], Search]) -> Iterator[tuple[float, Ints, np.random.Generator]]:
        """Yield for each step of an epoch: share of training that is done, the step's pairs by number, generator.

        When hard negatives must be mined again, `search()` is called on every worker; it returns a function, which only
        the first worker calls to find documents.
        """
        hard = self.hard
        if hard.source != "none" and epoch % hard.refresh == 0:
            self.mine(search())
        steps = batches(len(self.examples.pair_P2), self.batch_size, self.seed, epoch)
        generator = np.random.default_rng([self.seed, epoch, 1])
        for number, rows in enumerate(steps):
            done = epoch * len(steps) + number
            yield done / (self.epochs * len(steps)), rows, generator

    def drawn(self, rows: Ints, count: int, generator: np.random.Generator) -> Ints:
        """Draw up to `count` mined documents for each of the pairs numbered `rows`; returns their rows, one array."""
        mined_X = draw(self.mined[rows], count, generator).reshape(-1)
        return np.asarray(mined_X[mined_X >= 0])

    def mine(self, search: Search) -> None:
        """Mine hard negatives for all pairs on the first worker, and copy them to every worker."""
        group = self.learner.group
        mined = self.learner.kept["mined"]
        if group.rank == 0:
            query_P = self.examples.pair_P2[:, 0]
            mined = torch.from_numpy(mine(search, query_P, self.known, self.hard.top))
        copied = mined.to(self.tower.device)
        group.copy_from_first([copied])
        self.learner.kept["mined"] = copied.cpu()
