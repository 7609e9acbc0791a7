"""Vectors as hard to search as real ones, as many as wanted: real vectors, moved by differences of their neighbours.

A document's copies are x + .7 (a - b), of unit length, where a and b are two different ones of the ten nearest
neighbours of x. So a copy lies where the collection is as dense, and in the directions in which its neighbourhood
extends. A mixture of random directions is easier: a query's neighbours then lie in one cluster.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch

from benchmarks.synthetic import unit
from rayhier.arrays import Floats, Ints, Values

NEIGHBOURS, MOVED = 10, 0.7
AT_ONCE = 4096
QUERIES, VECTORS = 2_048, 65_536
"""Queries and vectors that are compared at a time."""
TIED = 1e-5
"""Difference of scores that counts as none."""


@dataclass(frozen=True)
class Asked:
    """Queries [q, m], and the score [q] of the k-th nearest vector of each."""

    query_QM: Floats
    least_Q: Values

    @classmethod
    def of(cls, query_QM: Floats, vector_NM: np.ndarray, k: int) -> Self:
        """Compare queries with all vectors."""
        last_Q1 = best(query_QM, vector_NM, k)[:, -1:]
        return cls(query_QM, scores(query_QM, vector_NM, last_Q1)[:, 0])

    def recall(self, found_QK: Ints, vector_NM: np.ndarray) -> float:
        """Share of the k vectors found [q, k] that are as near as the k-th nearest; -1: none.

        Of equally near vectors, of which moved copies have many, any will do.
        """
        score_QK = np.where(found_QK < 0, -np.inf, scores(self.query_QM, vector_NM, np.maximum(found_QK, 0)))
        return float((score_QK >= self.least_Q[:, None] - TIED).mean())


def scores(query_QM: Floats, vector_NM: np.ndarray, row_QK: Ints) -> Values:
    """Inner products [q, k] of queries [q, m] and rows [q, k] of vectors."""
    return np.stack(
        [np.asarray(vector_NM[row_K], np.float64) @ query_M for query_M, row_K in zip(query_QM, row_QK, strict=True)]
    )


def harder(vector_NM: Floats, times: int, path: Path) -> np.memmap:
    """Vectors [times · n, m] as float16 in a file: `vector_NM` [n, m], then moved copies of them."""
    n, m = vector_NM.shape
    made = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(times * n, m))
    made[:n] = vector_NM
    near_NK, rng = neighbours(vector_NM, NEIGHBOURS), np.random.default_rng(0)
    for copy in range(1, times):
        first_N, further_N = rng.integers(0, NEIGHBOURS, n), rng.integers(1, NEIGHBOURS, n)  # two different ones
        a_N, b_N = (near_NK[np.arange(n), place_N] for place_N in (first_N, (first_N + further_N) % NEIGHBOURS))
        made[copy * n : (copy + 1) * n] = unit(vector_NM + np.float32(MOVED) * (vector_NM[a_N] - vector_NM[b_N]))
    made.flush()
    return made


def neighbours(vector_NM: Floats, count: int) -> Ints:
    """The `count` nearest other vectors [n, count] of each."""
    near_NK, vectors = np.empty((len(vector_NM), count), np.int64), torch.from_numpy(vector_NM)
    for begin in range(0, len(vector_NM), AT_ONCE):
        part = vectors[begin : begin + AT_ONCE]
        near_NK[begin : begin + AT_ONCE] = (part @ vectors.T).topk(count + 1, dim=1).indices[:, 1:].numpy()
    return near_NK


def best(query_QM: Floats, vector_NM: np.ndarray, k: int) -> Ints:
    """The k nearest vectors [q, k] of each query, by products with all."""
    blocks = torch.split(torch.from_numpy(query_QM), QUERIES)
    best_of = [(torch.empty(len(block), 0), torch.empty(len(block), 0, dtype=torch.int64)) for block in blocks]
    for begin in range(0, len(vector_NM), VECTORS):
        part = torch.from_numpy(np.asarray(vector_NM[begin : begin + VECTORS], np.float32))
        row_F = begin + torch.arange(len(part))
        for number, (block, (score_QK, row_QK)) in enumerate(zip(blocks, best_of, strict=True)):
            score_QF, place_QK = torch.cat([score_QK, block @ part.T], 1).topk(k, dim=1)
            row_QF = torch.cat([row_QK, row_F.expand(len(block), -1)], 1)
            best_of[number] = score_QF, row_QF.gather(1, place_QK)
    return torch.cat([row_QK for _, row_QK in best_of]).numpy()
