"""Place documents in leaves: in the leaf that a router chooses, and in a second leaf that is nearly as near."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import OpenedCells, OpenedRouter
from rayhier.model.spill import CANDIDATES, second_leaves

PLACED = 16_384


def parts(n: int) -> list[slice]:
    """Cut n documents into slices of at most 16,384, and at least one slice.

    >>> parts(20_000)
    [slice(0, 16384, None), slice(16384, 20000, None)]
    """
    return [slice(begin, min(begin + PLACED, n)) for begin in range(0, max(1, n), PLACED)]


def place(
    router: OpenedRouter, encoded: Encoded, leaves: int, each: Callable[..., Iterable[Any]] = map
) -> tuple[Ints, Floats]:
    """Place documents in 1 or 2 leaves. Returns leaves [n, leaves], the first leaf again if there is no second leaf.

    Also returns log-probabilities [n, leaves]. Vectors may be float16. `each` maps a function over parts of documents.
    """
    batches = each(lambda part: _place(router, encoded[part], leaves), parts(len(encoded)))
    leaf_NR, log_prob_NR = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    return leaf_NR, log_prob_NR


def _place(router: OpenedRouter, encoded: Encoded, leaves: int) -> tuple[Ints, Floats]:
    count = 1 if leaves == 1 else min(CANDIDATES, router.n_leaves)
    leaf_NC, log_prob_NC = router.place(encoded, count)
    pick_NR = choose(router.cells, encoded.numpy, leaf_NC, leaves)
    return np.take_along_axis(leaf_NC, pick_NR, axis=1), np.take_along_axis(log_prob_NC, pick_NR, axis=1)


def choose(cells: OpenedCells, document_NM: Floats, leaf_NC: Ints, leaves: int) -> Ints:
    """Choose each document's leaves among `leaf_NC` [n, c]. Returns their columns [n, leaves], 0 for no second leaf."""
    first_N = np.zeros(len(leaf_NC), dtype=np.int64)
    if leaves == 1:
        return first_N[:, None]
    second_N = second_leaves(document_NM, leaf_NC, cells.centroid_LM, cells.price_L, cells.border)
    return np.stack([first_N, second_N], axis=1)
