"""Terms of a training step's loss, each divided among workers.

One compares pairs with negatives, the other keeps documents near their base vectors.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Bools, Ints
from rayhier.model.contrast import anchor_loss, info_nce
from rayhier.train.caching import Ask, encode
from rayhier.train.examples import KnownPositives
from rayhier.train.group import WorkerGroup
from rayhier.train.tower import Side, Tower


class Part(Protocol):
    """Interface of a term of a training step's loss."""

    @property
    def asks(self) -> list[Ask]:
        """The rows that this worker must encode for the term."""

    def loss(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute this worker's share of the term from the vectors of each request in `asks`: a sum over its rows.

        The sum is divided by the rows of all workers, so that the workers' shares add up to a mean.
        """


class PairBatch:
    """Pairs of a query and its document; other documents of the batch and mined documents are negatives.

    Every worker compares its queries with the documents of all workers.
    """

    def __init__(
        self,
        group: WorkerGroup,
        known: KnownPositives,
        side: Side,
        pair_N2: Ints,
        mined_X: Ints,
        temperature: float,
        asked_N: Ints | None = None,
    ) -> None:
        """Divide pairs [n, 2] of query and document rows among workers; `mined_X` are rows of negatives of all pairs.

        `known` holds answers, which are no negatives. `asked_N` are the rows on `side` that are encoded as queries; by
        default the query numbers in `pair_N2`, by which `known` is indexed.
        """
        self.group, self.known, self.side, self.temperature = group, known, side, temperature
        self.query_N, self.document_N = pair_N2.T
        self.asked_N = self.query_N if asked_N is None else asked_N
        self.column_C = np.concatenate([self.document_N, mined_X])
        self.rows = group.shares(np.arange(len(pair_N2)))
        self.columns = group.shares(np.arange(len(self.column_C)))
        self.own = self.rows[group.rank]
        """Positions in the batch of this worker's pairs."""

    @property
    def asks(self) -> list[Ask]:
        """The rows that this worker must encode: its queries, and its share of the documents."""
        return [
            (self.side, self.asked_N[self.own]),
            ("document", self.column_C[self.columns[self.group.rank]]),
        ]

    def loss(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute this worker's share of InfoNCE, a mean over all pairs, from the vectors of the rows in `asks`."""
        query_NM, share_CM = vectors
        column_CM = self.group.gather(share_CM, [len(share) for share in self.columns])
        return self.queries_pick(query_NM, column_CM) / len(self.query_N)

    def queries_pick(self, query_NM: Tensor, column_CM: Tensor, own_NS: Tensor | None = None) -> Tensor:
        """Compute InfoNCE of queries against documents, summed over this worker's pairs.

        `query_NM` are this worker's queries, `column_CM` the documents of all workers; `own_NS` [n, s] are inner
        products with further negatives of each query alone, -inf where it has fewer.
        """
        target_N, spared_NC = self._targets(self.known.among(self.query_N[self.own], self.column_C), query_NM.device)
        return info_nce(query_NM, column_CM, target_N, spared_NC, self.temperature, own_NS)

    def documents_pick(self, column_CM: Tensor, query_QM: Tensor) -> Tensor:
        """Compute InfoNCE of documents against queries, summed over this worker's pairs.

        `column_CM` are the documents and `query_QM` the queries of all workers.
        """
        spared_QN = self.known.among(self.query_N, self.document_N[self.own])
        target_N, spared_NQ = self._targets(spared_QN.T.copy(), query_QM.device)
        return info_nce(column_CM[target_N], query_QM, target_N, spared_NQ, self.temperature)

    def _targets(self, spared_NC: Bools, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return each row's partner [n], and which others are partners too [n, c]: neither positive nor negative."""
        spared_NC[np.arange(len(self.own)), self.own] = False
        return torch.from_numpy(self.own).to(device), torch.from_numpy(spared_NC).to(device)


class Anchor:
    """A loss term that keeps documents' vectors near their base vectors (ours)."""

    def __init__(self, group: WorkerGroup, row_N: Ints, base_NM: Tensor, weight: float) -> None:
        """Divide documents, rows [n] with base vectors [n, m], among workers; `weight` multiplies the loss."""
        self.weight, self.rows = weight, len(row_N)
        rows = group.shares(np.arange(len(row_N)))[group.rank]
        self.row_N, self.base_NM = row_N[rows], base_NM[rows]

    @property
    def asks(self) -> list[Ask]:
        """The rows that this worker must encode: its share of the documents."""
        return [("document", self.row_N)]

    def loss(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute this worker's share of the weighted mean over documents of 1 - cosine to the base vector."""
        return self.weight * anchor_loss(vectors[0], self.base_NM.to(vectors[0].device)) / max(1, self.rows)


def total_loss(tower: Tower, parts: Sequence[Part], micro_batch: int | None) -> tuple[Tensor, Callable[[], None]]:
    """Encode the rows of all terms together: returns the sum of losses, and a function to call after its backward pass.

    With a `micro_batch`, the activations of at most that many texts are in memory at a time.
    """
    asks = [part.asks for part in parts]
    vectors, backward = encode(tower, [ask for part_asks in asks for ask in part_asks], micro_batch)
    total, begin = torch.zeros((), device=tower.device), 0
    for part, part_asks in zip(parts, asks, strict=True):
        total = total + part.loss(vectors[begin : begin + len(part_asks)])
        begin += len(part_asks)
    return total, backward
