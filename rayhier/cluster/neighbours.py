"""Exact nearest rows by inner product, in one of three forms: faiss on a GPU, torch on a GPU, or faiss on a CPU.

All forms return the same rows, except where scores are equal or almost equal.
"""

from typing import Any

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.model.device import gpu

BLOCK = 1 << 18
"""Rows that are converted to float32 and searched at a time."""
SCORES = 1 << 28
"""Most scores in a GPU's memory at a time."""


def faiss_on_gpu() -> bool:
    return gpu() is not None and hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0


class Neighbours:
    """Rows [n, m], float32 or float16, of which the nearest to queries are found. A GPU holds all rows at once."""

    def __init__(self, row_NM: Floats) -> None:
        self._row_NM: Any = row_NM
        self._search = self._by_faiss
        if faiss_on_gpu():
            self._memory = faiss.StandardGpuResources()
            self._index = faiss.GpuIndexFlatIP(self._memory, row_NM.shape[1])
            for begin in range(0, len(row_NM), BLOCK):
                self._index.add(_float32(row_NM[begin : begin + BLOCK]))
            self._search = self._by_index
        elif (device := gpu()) is not None:
            self.use_torch(device)
        elif len(row_NM) <= BLOCK:
            self._index = flat_index(row_NM)
            self._search = self._by_index

    def use_torch(self, device: str) -> None:
        import torch

        self._row_NM = torch.from_numpy(self._row_NM).to(device)
        self._search = self._by_torch

    def search(self, query_QM: Floats, count: int) -> tuple[Ints, Floats]:
        """Find the `count` rows of greatest inner product with each query [q, m], greatest first.

        Returns their numbers and the inner products, both [q, min(count, n)].
        """
        return self._search(_float32(query_QM), min(count, len(self._row_NM)))

    def _by_index(self, query_QM: Floats, count: int) -> tuple[Ints, Floats]:
        scores, numbers = self._index.search(query_QM, count)
        return numbers, scores

    def _by_faiss(self, query_QM: Floats, count: int) -> tuple[Ints, Floats]:
        """Search blocks of rows one after another, and keep the best."""
        row_QK, score_QK = np.zeros((len(query_QM), 0), np.int64), np.zeros((len(query_QM), 0), np.float32)
        for begin in range(0, len(self._row_NM), BLOCK):
            block_NM = self._row_NM[begin : begin + BLOCK]
            scores, numbers = flat_index(block_NM).search(query_QM, min(count, len(block_NM)))
            score_QK, row_QK = np.hstack([score_QK, scores]), np.hstack([row_QK, numbers + begin])
            order_QK = np.argsort(-score_QK, axis=1, kind="stable")[:, :count]
            row_QK, score_QK = np.take_along_axis(row_QK, order_QK, 1), np.take_along_axis(score_QK, order_QK, 1)
        return row_QK, score_QK

    def _by_torch(self, query_QM: Floats, count: int) -> tuple[Ints, Floats]:
        """Multiply blocks of rows and of queries on the device, and keep the best of each query."""
        import torch

        parts, rows = [], self._row_NM
        for part_QM in torch.split(torch.from_numpy(query_QM).to(rows.device), SCORES // BLOCK):
            row_QK, score_QK = (part_QM.new_zeros(len(part_QM), 0, dtype=kind) for kind in (torch.int64, torch.float32))
            for number, block_NM in enumerate(torch.split(rows, BLOCK)):
                best = (part_QM @ block_NM.float().T).topk(min(count, len(block_NM)), dim=1)
                score_QK = torch.cat([score_QK, best.values], dim=1)
                row_QK = torch.cat([row_QK, best.indices + number * BLOCK], dim=1)
                score_QK, order_QK = score_QK.topk(min(count, score_QK.shape[1]), dim=1)
                row_QK = row_QK.gather(1, order_QK)
            parts.append((row_QK.cpu().numpy(), score_QK.cpu().numpy()))
        rows_QK, scores_QK = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return rows_QK, scores_QK


def nearest(query_QM: Floats, row_NM: Floats, count: int) -> tuple[Ints, Floats]:
    """Find the `count` rows [n, m] nearest to each of q vectors. See `Neighbours.search`."""
    return Neighbours(row_NM).search(query_QM, count)


def flat_index(row_NM: Floats) -> Any:
    index = faiss.IndexFlatIP(row_NM.shape[1])
    index.add(_float32(row_NM))
    return index


def _float32(vectors: Floats) -> Floats:
    return np.ascontiguousarray(vectors, dtype=np.float32)
