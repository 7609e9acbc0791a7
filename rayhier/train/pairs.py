"""Step over training pairs of a query and its document, with mined hard negatives (EHI's Algorithm 1, ANCE)."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from rayhier.arrays import Floats, Ints
from rayhier.dataset.ranking import repeated
from rayhier.spec.train.common import MINED, REFRESH
from rayhier.train.examples import Examples, KnownPositives, batches
from rayhier.train.loop import Learner
from rayhier.train.tower import Side, Tower, encode_side

CHUNK_QUERIES = 4096


Search = Callable[[Ints, int], Ints]
"""Function from numbers [p] of pairs and k to the k best document rows [p, k] for their queries. -1: no row."""


def mine(search: Search, query_P: Ints, known: KnownPositives, top: int) -> Ints:
    """Mine the `top` best documents [p, top] for each pair that are no known answers and have different vectors."""
    mined_PX = np.full((len(query_P), top), -1, dtype=np.int64)
    for part in np.split(np.arange(len(query_P)), range(CHUNK_QUERIES, len(query_P), CHUNK_QUERIES)):
        fetch = top + known.most()
        for k in (fetch, 2 * fetch, 4 * fetch, 8 * fetch):  # copies may crowd others out
            row_PK = search(part, min(k, known.documents))
            again_PK = repeated(known.first_N[row_PK])
            wrong_PK = (row_PK >= 0) & ~known(query_P[part, None], row_PK) & ~again_PK
            if not (again_PK & (row_PK >= 0)).any() or (wrong_PK.sum(axis=1) >= top).all() or k >= known.documents:
                break
        order = np.argsort(~wrong_PK, axis=1, kind="stable")[:, :top]
        best = np.take_along_axis(np.where(wrong_PK, row_PK, -1), order, axis=1)
        mined_PX[part, : best.shape[1]] = best
    return mined_PX


def draw(mined_PT: Ints, count: int, generator: np.random.Generator) -> Ints:
    """Draw `count` of each pair's mined negatives [p, top], without repetition: [p, count], -1 for none."""
    order_PT = np.argsort(np.where(mined_PT >= 0, generator.random(mined_PT.shape), 2.0), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(mined_PT, order_PT[:, :count], axis=1))


class Pairs:
    def __init__(
        self, tower: Tower, examples: Examples, source: str, batch_size: int, epochs: int, seed: int, learner: Learner
    ) -> None:
        self.tower, self.examples, self.source, self.seed, self.learner = tower, examples, source, seed, learner
        self.batch_size, self.epochs = batch_size, epochs
        self.known = examples.known()
        learner.kept["mined"] = torch.full((len(examples.pair_P2), MINED), -1, dtype=torch.long)

    @property
    def mined(self) -> Ints:
        """Rows [p, top] of hard negatives of each pair, in the order of the search, -1 for none."""
        return self.learner.kept["mined"].numpy()

    def side(self, side: Side) -> Floats:
        return encode_side(self.tower, side, self.examples.document_NM.shape[1], self.learner.group)

    def steps(self, epoch: int, search: Callable[[], Search]) -> Iterator[tuple[float, Ints, np.random.Generator]]:
        """Yield each step's share of training done, numbers of pairs, and generator. Mines negatives first if due."""
        if self.source != "none" and epoch % REFRESH == 0:
            self.mine(search())
        steps = batches(len(self.examples.pair_P2), self.batch_size, self.seed, epoch)
        generator = np.random.default_rng([self.seed, epoch, 1])
        for number, rows in enumerate(steps):
            done = epoch * len(steps) + number
            yield done / (self.epochs * len(steps)), rows, generator

    def drawn(self, rows: Ints, count: int, generator: np.random.Generator) -> Ints:
        """Draw up to `count` mined documents for each of the pairs. Returns their rows in one array."""
        mined_X = draw(self.mined[rows], count, generator).reshape(-1)
        return np.asarray(mined_X[mined_X >= 0])

    def mine(self, search: Search) -> None:
        query_P = self.examples.pair_P2[:, 0]

        def own(pair_X: Ints) -> tuple[Ints]:
            return (mine(lambda part, k: search(pair_X[part], k), query_P[pair_X], self.known, MINED),)

        (mined,) = self.learner.group.spread(own, np.arange(len(query_P)))
        self.learner.kept["mined"] = torch.from_numpy(mined)
