"""Training of a projection of token vectors by contrast: InfoNCE of MaxSim, with hard negatives of hybrid search.

Shapes: Q queries, X queries of a batch, Y their documents, S hard negatives, M numbers of a vector, D of a projected
vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.late.candidates import NEGATIVES, Candidates, Listing
from benchmarks.late.maxsim import maxsim, padded, principal, projected
from benchmarks.late.tokens import Read, halves
from rayhier.arrays import Ints

EPOCHS, BATCH, RATE, TEMPERATURE = 4, 32, 3e-3, 0.05
"""The rate falls in a line to 0."""


@dataclass(frozen=True)
class Lessons:
    """Queries with an answer each, which train a projection or say which epoch's is the best."""

    texts: Sequence[str]
    answer_Q: Ints
    negative_QS: Ints
    """Hard negatives; -1 where there are fewer."""
    answers: Sequence[set[int]]
    """All known answers of each query."""

    @classmethod
    def train(cls, listed: Listing) -> "Lessons":
        """Make lessons of train queries."""
        pair_P2 = listed.fold.examples.pair_P2
        answers: dict[int, set[int]] = {}
        for query, document in pair_P2.tolist():
            answers.setdefault(query, set()).add(document)
        known = [answers[int(name)] for name in listed.taught.ids]
        return cls(listed.taught.texts, listed.answer_Q, listed.negative_QS, known)

    @classmethod
    def dev(cls, dev: Candidates) -> "Lessons":
        """Make lessons of the dev queries whose list has an answer, by the best listed answer and the best others."""
        able = np.flatnonzero((dev.gain_QK > 0).any(axis=1)).tolist()
        answers = [set(dev.row_QK[query, dev.gain_QK[query] > 0].tolist()) for query in able]
        first = [dev.row_QK[query, dev.gain_QK[query] > 0][0] for query in able]
        wrong = [dev.row_QK[query, dev.gain_QK[query] == 0][:NEGATIVES] for query in able]
        return cls([dev.queries.texts[query] for query in able], np.array(first), np.stack(wrong), answers)

    def known(self, query_X: Ints, document_Y: Ints) -> Tensor:
        """Find the documents [x, y] that answer a query, but for its own answer, document x of query x."""
        known_XY = [[document in self.answers[query] for document in document_Y.tolist()] for query in query_X.tolist()]
        return torch.tensor(known_XY) & ~torch.eye(len(query_X), len(document_Y), dtype=torch.bool)


def loss(read: Read, lessons: Lessons, query_X: Ints, negative_XS: Ints, projection_MD: Tensor) -> Tensor:
    """InfoNCE of MaxSim: a query's answer against the answers and hard negatives of all queries of the batch."""
    document_Y = np.concatenate([lessons.answer_Q[query_X], negative_XS[negative_XS >= 0]])
    place_Y = read.place_N[document_Y]
    vector_XM = halves(read.documents.vector_TM[read.documents.rows(place_Y)])
    document_NTM, mask_NT = padded(projected(vector_XM, projection_MD), read.documents.counts(place_Y))
    query_IM, of_I = read.query_tokens([lessons.texts[query] for query in query_X.tolist()])
    score_XY = maxsim(projected(query_IM, projection_MD), of_I, len(query_X), document_NTM, mask_NT) / TEMPERATURE
    score_XY = score_XY.masked_fill(lessons.known(query_X, document_Y), -torch.inf)
    return F.cross_entropy(score_XY, torch.arange(len(query_X)))


def train(read: Read, listed: Listing, size: int, seed: int) -> tuple[Tensor, list[float]]:
    """Train a projection [m, d] from principal directions; also the loss on dev before and after each epoch.

    The projection is that of the least loss on dev.
    """
    lessons, dev = Lessons.train(listed), Lessons.dev(listed.dev)
    projection_MD = principal(projected(read.sample(listed.answer_Q), None).numpy(), size).requires_grad_()
    optimiser = torch.optim.Adam([projection_MD], RATE)
    steps, generator = EPOCHS * -(-len(lessons.texts) // BATCH), np.random.default_rng(seed)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1, 0, steps)
    best_MD, losses = projection_MD.detach().clone(), [dev_loss(read, dev, projection_MD)]
    for _ in range(EPOCHS):
        order_Q = generator.permutation(len(lessons.texts))
        for begin in range(0, len(order_Q), BATCH):
            query_X = order_Q[begin : begin + BATCH]
            drawn_X1 = generator.integers(NEGATIVES, size=(len(query_X), 1))
            negative_XS = np.take_along_axis(lessons.negative_QS[query_X], drawn_X1, axis=1)
            optimiser.zero_grad()
            torch.autograd.backward(loss(read, lessons, query_X, negative_XS, projection_MD))
            optimiser.step()
            schedule.step()
        losses.append(dev_loss(read, dev, projection_MD))
        if losses[-1] == min(losses):
            best_MD = projection_MD.detach().clone()
    return best_MD, losses


@torch.no_grad()
def dev_loss(read: Read, dev: Lessons, projection_MD: Tensor) -> float:
    """Mean loss of dev queries, in batches."""
    parts = [np.arange(begin, min(begin + BATCH, len(dev.texts))) for begin in range(0, len(dev.texts), BATCH)]
    losses = [float(loss(read, dev, query_X, dev.negative_QS[query_X], projection_MD)) for query_X in parts]
    return float(np.average(losses, weights=[len(query_X) for query_X in parts]))
