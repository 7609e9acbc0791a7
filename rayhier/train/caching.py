"""Gradient caching: contrastive training with large batches in little memory.

Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", 2021. A contrastive loss needs
the vectors of the whole batch, but not its activations: encode in pieces without keeping activations, take the loss's
gradient with respect to the vectors, then encode each piece again and pass that gradient back through it.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Ints
from rayhier.train.tower import Side, Tower

Ask = tuple[Side, Ints]
"""Request to encode texts: their side, such as queries or documents, and their rows."""


def encode(tower: Tower, asks: Sequence[Ask], micro_batch: int | None) -> tuple[list[Tensor], Callable[[], None]]:
    """Encode texts: returns the vectors [n, m] of each request, and a function to call after the loss's backward pass.

    Where there are more texts than `micro_batch`, the activations of so many are in memory at a time: every text is
    encoded twice, and the function passes the vectors' gradients on to the weights. The gradients are the same.
    """
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
    """Split rows into pieces of at most `size`; no rows give one empty piece.

    >>> [part.tolist() for part in pieces(np.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    return np.split(rows, range(size, len(rows), size))
