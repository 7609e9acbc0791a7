"""Find the exact nearest rows by inner product, by faiss or torch. Only rows with equal scores may differ."""

from functools import cache
from typing import Any

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.model.device import gpu

BLOCK = 1 << 18
"""Number of rows that are converted to float32 and searched at a time."""
SCORES = 1 << 28
FAISS_MOST = 2048
"""Largest number of rows per query that faiss finds on a GPU. torch finds more."""


def faiss_on_gpu() -> bool:
    return gpu() is not None and hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0


class Neighbours:
    """Rows [n, m], float32 or float16, among which queries find the nearest rows. A GPU keeps all rows in memory."""

    def __init__(self, row_NM: Floats, device: str | None = None) -> None:
        self._device, self._rows = device or gpu(), len(row_NM)
        self._parts = [row_NM[begin : begin + BLOCK] for begin in range(0, len(row_NM), BLOCK)]
        is_held = self._device is not None or len(self._parts) == 1  # else one block at a time is in memory
        self._held = [_searchable(part_NM, self._device) for part_NM in self._parts] if is_held else []

    def search(self, query_QM: Floats, count: int) -> tuple[Ints, Floats]:
        """Find the `count` rows nearest to each query [q, m]. Returns rows and inner products [q, k], best first."""
        query_QM, count = _float32(query_QM), min(count, self._rows)
        row_QK, score_QK = np.zeros((len(query_QM), 0), np.int64), np.zeros((len(query_QM), 0), np.float32)
        for number, part_NM in enumerate(self._parts):
            is_held = self._held and (count <= FAISS_MOST or not faiss_on_gpu())
            block = self._held[number] if is_held else _searchable(part_NM, self._device, count)
            scores, rows = block.search(query_QM, min(count, len(part_NM)))
            score_QK, row_QK = np.hstack([score_QK, scores]), np.hstack([row_QK, rows + number * BLOCK])
            if number:
                order_QK = np.argsort(-score_QK, axis=1, kind="stable")[:, :count]
                row_QK, score_QK = np.take_along_axis(row_QK, order_QK, 1), np.take_along_axis(score_QK, order_QK, 1)
        return row_QK, score_QK


def _searchable(row_NM: Floats, device: str | None, count: int = 0) -> Any:
    if device is None:
        return flat_index(row_NM)
    if not faiss_on_gpu() or count > FAISS_MOST:
        return _TorchRows(row_NM, device)
    import torch

    # A worker of Ray Train sees all GPUs of its machine, so torch says which GPU belongs to the worker.
    return faiss.index_cpu_to_gpu(_memory(), torch.cuda.current_device(), flat_index(row_NM))


@cache
def _memory() -> Any:
    return faiss.StandardGpuResources()


class _TorchRows:
    """Rows on a device, with the method `search` of a faiss index, computed by matrix products."""

    def __init__(self, row_NM: Floats, device: str) -> None:
        import torch

        self._row_NM = torch.from_numpy(np.ascontiguousarray(row_NM)).to(device)

    def search(self, query_QM: Floats, count: int) -> tuple[Floats, Ints]:
        import torch

        queries, row_MN = torch.from_numpy(query_QM).to(self._row_NM.device), self._row_NM.float().T
        best = [(part_QM @ row_MN).topk(count, dim=1) for part_QM in torch.split(queries, SCORES // BLOCK)]
        return tuple(torch.cat(part).cpu().numpy() for part in zip(*best, strict=True))  # type: ignore[return-value]


def nearest(query_QM: Floats, row_NM: Floats, count: int) -> tuple[Ints, Floats]:
    """Find the `count` rows [n, m] nearest to each query [q, m]. Returns rows and inner products [q, k], best first."""
    return Neighbours(row_NM).search(query_QM, count)


def flat_index(row_NM: Floats) -> Any:
    index = faiss.IndexFlatIP(row_NM.shape[1])
    index.add(_float32(row_NM))
    return index


def _float32(vectors: Floats) -> Floats:
    return np.ascontiguousarray(vectors, dtype=np.float32)
