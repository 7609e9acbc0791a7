"""Cut texts' token ids into batches of similar length, and pad a batch."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from rayhier.arrays import Ints

CPU_BATCH, GPU_BATCH, ONNX_BATCH = (64, 2_048), (1_024, 65_536), (8, 512)
"""Limits of texts and of tokens in a padded batch, for torch on a CPU, torch on a GPU, and ONNX Runtime. Larger batches
outgrow the caches of a CPU."""
Ids = Sequence[int] | npt.NDArray[np.int32]
Tokens = Sequence[Ids]


def batches(tokens: Tokens, most: tuple[int, int], begin: int = 0) -> Iterator[Ints]:
    """Yield the rows of each batch, the longest texts first. Skips the first `begin` texts in this order."""
    order = np.argsort([-len(ids) for ids in tokens], kind="stable")
    texts, size = most
    while begin < len(order):
        longest = max(1, len(tokens[order[begin]]))
        rows = order[begin : begin + min(texts, max(1, size // longest))]
        yield rows
        begin += len(rows)


def padded(batch: Tokens, padding: int) -> tuple[Ints, Ints]:
    """Return token ids [n, t], padded on the right, and a mask. The first text must be the longest."""
    ids_NT = np.full((len(batch), max(1, len(batch[0]))), padding, dtype=np.int64)
    mask_NT = np.zeros_like(ids_NT)
    for row, ids in enumerate(batch):
        ids_NT[row, : len(ids)] = ids
        mask_NT[row, : len(ids)] = 1
    return ids_NT, mask_NT
