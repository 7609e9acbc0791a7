"""A linear layer that finds lists as train queries taught it, in place of centroids.

Vecchiato, Lucchese, Nardini and Bruch, "A Learning-to-Rank Formulation of Clustering-Based Approximate Nearest Neighbor
Search" (SIGIR 2024): lists stay as k-means made them. A layer W scores them for a query q by W q. It is trained on
queries by Adam, with cross-entropy over lists; the target is the list that holds the query's exact nearest document. A
row of W then stands where the list's centroid stood.

Here W starts from a multiple of the centroids. From random numbers 40,000 queries led to worse rows than the centroids:
of 1,024 lists of oewn_examples 76 had to be searched for 95% of the targets, by centroids 68, from centroids 52.

Shapes: Q queries, L lists, M embedding size, N documents.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.harder import best
from rayhier.arrays import Floats

PER_LIST = 8
"""Fewest queries for each list; where train queries are fewer, documents are further queries."""
HELD_OUT = 10
"""One of so many queries is held out, to choose the learning rate and the number of epochs."""
SCALES, RATES = (10, 20, 40), (3e-3, 1e-2)
"""First weights that are tried, as multiples of the centroids, and learning rates."""
BATCH, MOST_EPOCHS, PATIENCE = 512, 50, 3
"""Queries of a step, most epochs, and epochs without a better one after which a pair of those is given up."""
FOUND = 0.95
"""Share of held-out queries whose target is to be among the lists that the layer ranks first."""


@dataclass(frozen=True)
class Lessons:
    """Queries [q, m] and the list [q] that each is to find."""

    query_QM: Tensor
    list_Q: Tensor

    @classmethod
    def of(cls, train_QM: Floats, vector_NM: np.ndarray, centroid_LM: Floats) -> "Lessons":
        """Make lessons of train queries and, where these are few, of documents."""
        missing = max(0, PER_LIST * len(centroid_LM) - len(train_QM))
        rows = np.sort(np.random.default_rng(0).permutation(len(vector_NM))[:missing])
        query_QM = np.concatenate([train_QM, np.asarray(vector_NM[rows], np.float32)])
        row_Q = np.concatenate([best(train_QM, vector_NM, 1)[:, 0], rows])  # a document is nearest to itself
        list_Q = best(np.asarray(vector_NM[row_Q], np.float32), centroid_LM, 1)[:, 0]
        shuffled = np.random.default_rng(1).permutation(len(row_Q))
        return cls(torch.from_numpy(query_QM[shuffled]), torch.from_numpy(list_Q[shuffled]))

    def __len__(self) -> int:
        return len(self.list_Q)

    def __getitem__(self, some: slice | Tensor) -> "Lessons":
        """Some of the lessons."""
        return Lessons(self.query_QM[some], self.list_Q[some])

    def lists_needed(self, weight_LM: Tensor) -> int:
        """Lists that have to be searched for 95% of the queries to find their target."""
        score_QL = self.query_QM @ weight_LM.T
        better_Q = (score_QL > score_QL.gather(1, self.list_Q[:, None])).sum(1)
        return 1 + int(better_Q.double().quantile(FOUND))


def learned(train_QM: Floats, vector_NM: np.ndarray, centroid_LM: Floats) -> Floats:
    """Rows [l, m] that train queries taught, for lists that hold the documents [n, m] nearest to their centroids.

    The first weights, the learning rate and the number of epochs are those that need the fewest lists on queries that
    are held out.
    """
    lessons = Lessons.of(train_QM, vector_NM, centroid_LM)
    cut = len(lessons) // HELD_OUT
    tried = (best_epoch(lessons[cut:], lessons[:cut], centroid_LM, *pair) for pair in product(SCALES, RATES))
    _, epochs, scale, rate = min(tried)
    layer = Layer(centroid_LM, scale, rate)
    for _ in range(epochs):
        layer.epoch(lessons)
    return np.ascontiguousarray(layer.weight_LM.detach().numpy())


def best_epoch(
    lessons: Lessons, held_out: Lessons, centroid_LM: Floats, scale: float, rate: float
) -> tuple[int, int, float, float]:
    """Fewest lists that held-out queries need after any epoch, the number of that epoch, and what was tried."""
    layer = Layer(centroid_LM, scale, rate)
    best = held_out.lists_needed(layer.weight_LM.detach()), 0
    for epoch in range(1, MOST_EPOCHS + 1):
        layer.epoch(lessons)
        best = min(best, (held_out.lists_needed(layer.weight_LM.detach()), epoch))
        if epoch >= best[1] + PATIENCE:
            break
    return *best, scale, rate


class Layer:
    """The layer, and what trains it."""

    def __init__(self, centroid_LM: Floats, scale: float, rate: float) -> None:
        self._generator = torch.Generator().manual_seed(0)
        self.weight_LM = (scale * torch.from_numpy(centroid_LM)).requires_grad_()
        self._adam = torch.optim.Adam([self.weight_LM], rate)

    def epoch(self, lessons: Lessons) -> None:
        """One step for each batch, all lessons once."""
        for rows in torch.split(torch.randperm(len(lessons), generator=self._generator), BATCH):
            batch = lessons[rows]
            self._adam.zero_grad()
            loss = cross_entropy(batch.query_QM @ self.weight_LM.T, batch.list_Q)
            loss.backward()  # type: ignore[no-untyped-call]
            self._adam.step()
