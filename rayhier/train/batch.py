"""Divide the terms of a training step's loss among workers, and encode a step's texts in little memory.

InfoNCE compares pairs with negatives (van den Oord et al., "Representation Learning with Contrastive Predictive
Coding", 2018). Gradient caching encodes in pieces without activations, and takes the loss's gradient with respect to
the vectors. Then gradient caching encodes each piece again and passes the gradient back. Source: Gao et al., "Scaling
Deep Contrastive Learning Batch Size under Memory Limited Setup", 2021.

Shapes: N queries, C documents that every query is compared with, S documents that a single query is compared with,
M embedding size.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rayhier.arrays import Bools, Ints
from rayhier.train.examples import KnownPositives
from rayhier.train.group import WorkerGroup
from rayhier.train.tower import Side, Tower

Ask = tuple[Side, Ints]


def encode(tower: Tower, asks: Sequence[Ask]) -> tuple[list[Tensor], Callable[[], None]]:
    """Encode texts. Returns vectors [n, m] for each of `asks`, and a function to call after the loss's backward pass.

    With more texts than `tower.micro_batch`, every text is encoded twice, and the function passes the gradients on.
    """
    micro_batch = tower.micro_batch
    if micro_batch is None or sum(len(rows) for _, rows in asks) <= micro_batch:
        return [tower.encode(side, rows) for side, rows in asks], lambda: None
    with torch.no_grad():
        vectors = [torch.cat([tower.encode(side, part) for part in pieces(rows, micro_batch)]) for side, rows in asks]
    for vector in vectors:
        vector.requires_grad_()

    def backward() -> None:
        for (side, rows), vector in zip(asks, vectors, strict=True):
            if vector.grad is None:
                continue
            begin = 0
            for part in pieces(rows, micro_batch) if len(rows) else []:
                tower.encode(side, part).backward(vector.grad[begin : begin + len(part)])  # type: ignore[no-untyped-call]
                begin += len(part)

    return vectors, backward


def pieces(rows: Ints, size: int) -> list[Ints]:
    """Split rows into pieces of at most `size`. Without rows, there is one empty piece.

    >>> [part.tolist() for part in pieces(np.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    return np.split(rows, range(size, len(rows), size))


def info_nce(
    query_NM: Tensor,
    document_CM: Tensor,
    target_N: Tensor,
    spared_NC: Tensor,
    temperature: float,
    own_NS: Tensor | None = None,
) -> Tensor:
    """Compute InfoNCE: the cross-entropy of softmax(query · document / temperature), summed over queries.

    `target_N` is the column of each query's document. `spared_NC` marks further answers, which are left out. `own_NS`
    are inner products of each query with further documents for this query alone, -inf for none.

    >>> query, documents = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> info_nce(query, documents, torch.tensor([0]), torch.zeros(1, 2, dtype=torch.bool), 1.0)  # log(1 + 1/e)
    tensor(0.3133)
    """
    score_NC = (query_NM @ document_CM.T).masked_fill(spared_NC, -torch.inf)
    score_NX = score_NC if own_NS is None else torch.cat([score_NC, own_NS], dim=1)
    return F.cross_entropy(score_NX / temperature, target_N, reduction="sum")


def anchor_loss(trained_NM: Tensor, base_NM: Tensor) -> Tensor:
    """Compute the sum over documents of 1 - cosine(trained vector, base encoder's vector). Both are [n, m].

    >>> anchor_loss(torch.tensor([[0.0, 2.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor(1.)
    """
    return (1 - F.cosine_similarity(trained_NM, base_NM, dim=1)).sum()


class LossTerm(Protocol):
    @property
    def asks(self) -> list[Ask]: ...

    def loss(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute this worker's share of the term: a sum over its rows, divided by the rows of all workers."""


class PairBatch:
    def __init__(
        self,
        group: WorkerGroup,
        known: KnownPositives,
        side: Side,
        pair_N2: Ints,
        mined_X: Ints,
        temperature: float,
        asked_N: Ints | None = None,
        weight: float = 1.0,
    ) -> None:
        """Divide pairs [n, 2] of query and document rows among workers. Rows `mined_X` are negatives of all queries.

        `known` holds answers, which are no negatives. `side` names the texts that are encoded as queries, and `asked_N`
        are their rows. By default, these are the query rows of `pair_N2`. `weight` multiplies the loss.
        """
        self.group, self.known, self.side, self.temperature, self.weight = group, known, side, temperature, weight
        self.query_N, self.document_N = pair_N2.T
        self.asked_N = self.query_N if asked_N is None else asked_N
        self.column_C = np.concatenate([self.document_N, mined_X])
        self.rows = group.shares(np.arange(len(pair_N2)))
        self.columns = group.shares(np.arange(len(self.column_C)))
        self.own = self.rows[group.rank]

    @property
    def asks(self) -> list[Ask]:
        return [(self.side, self.asked_N[self.own]), ("document", self.column_C[self.columns[self.group.rank]])]

    def loss(self, vectors: Sequence[Tensor]) -> Tensor:
        query_NM, share_CM = vectors
        column_CM = self.group.gather(share_CM, [len(share) for share in self.columns])
        return self.weight * self.queries_pick(query_NM, column_CM) / len(self.query_N)

    def queries_pick(self, query_NM: Tensor, column_CM: Tensor, own_NS: Tensor | None = None) -> Tensor:
        target_N, spared_NC = self._targets(self.known.among(self.query_N[self.own], self.column_C), query_NM.device)
        return info_nce(query_NM, column_CM, target_N, spared_NC, self.temperature, own_NS)

    def documents_pick(self, column_CM: Tensor, query_QM: Tensor) -> Tensor:
        spared_QN = self.known.among(self.query_N, self.document_N[self.own])
        target_N, spared_NQ = self._targets(spared_QN.T.copy(), query_QM.device)
        return info_nce(column_CM[target_N], query_QM, target_N, spared_NQ, self.temperature)

    def _targets(self, spared_NC: Bools, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the column [n] of each row's partner, and a mask [n, c] of columns that are no negatives of a row."""
        spared_NC[np.arange(len(self.own)), self.own] = False
        return torch.from_numpy(self.own).to(device), torch.from_numpy(spared_NC).to(device)


class Anchor:
    def __init__(self, group: WorkerGroup, row_N: Ints, base_NM: Tensor, weight: float) -> None:
        self.weight, self.rows = weight, len(row_N)
        rows = group.shares(np.arange(len(row_N)))[group.rank]
        self.row_N, self.base_NM = row_N[rows], base_NM[rows]

    @property
    def asks(self) -> list[Ask]:
        return [("document", self.row_N)]

    def loss(self, vectors: Sequence[Tensor]) -> Tensor:
        return self.weight * anchor_loss(vectors[0], self.base_NM.to(vectors[0].device)) / max(1, self.rows)


def total_loss(tower: Tower, parts: Sequence[LossTerm]) -> tuple[Tensor, Callable[[], None]]:
    asks = [part.asks for part in parts]
    vectors, backward = encode(tower, [ask for part_asks in asks for ask in part_asks])
    total, begin = torch.zeros((), device=tower.device), 0
    for part, part_asks in zip(parts, asks, strict=True):
        total = total + part.loss(vectors[begin : begin + len(part_asks)])
        begin += len(part_asks)
    return total, backward
