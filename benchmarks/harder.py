"""Vectors as hard to search as real ones, as many as wanted: real vectors, moved by differences of their neighbours.

A document's copies are x + .7 (a - b), of unit length, where a and b are two of the ten nearest neighbours of x. So a
copy lies where the collection is as dense, and in the directions in which its neighbourhood extends. A mixture of
random directions is easier: a query's neighbours then lie in one cluster.
"""

from pathlib import Path

import numpy as np
import torch

from benchmarks.synthetic import unit
from rayhier.arrays import Floats, Ints

NEIGHBOURS, MOVED = 10, 0.7
AT_ONCE = 4096


def harder(vector_NM: Floats, times: int, path: Path) -> np.memmap:
    """Vectors [times · n, m] as float16 in a file: `vector_NM` [n, m], then moved copies of them."""
    n, m = vector_NM.shape
    made = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(times * n, m))
    made[:n] = vector_NM
    near_NK, rng = neighbours(vector_NM, NEIGHBOURS), np.random.default_rng(0)
    for copy in range(1, times):
        a_N, b_N = (near_NK[np.arange(n), rng.integers(0, NEIGHBOURS, n)] for _ in range(2))
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
    score_QK, row_QK, queries = torch.empty(len(query_QM), 0), torch.empty(len(query_QM), 0, dtype=torch.int64), None
    queries = torch.from_numpy(query_QM)
    for begin in range(0, len(vector_NM), 1 << 16):
        part = torch.from_numpy(np.asarray(vector_NM[begin : begin + (1 << 16)], np.float32))
        score_QF, row_QF = torch.cat([score_QK, queries @ part.T], 1), begin + torch.arange(len(part))
        rows_QF = torch.cat([row_QK, row_QF.expand(len(query_QM), -1)], 1)
        score_QK, place_QK = score_QF.topk(k, dim=1)
        row_QK = rows_QF.gather(1, place_QK)
    return row_QK.numpy()
