"""Where documents lie: the leaf a router puts each in, and for those near a border a second one."""

import numpy as np
import torch

from rayhier.cluster.spill import CANDIDATES, Spill, second_leaves
from rayhier.model.router import Router, place_all
from rayhier.storage.columns import Floats

AT_ONCE = 16_384
"""Documents whose candidate leaves are in memory together."""

Placed = tuple[np.ndarray, Floats]


def parts(n: int) -> list[slice]:
    """Batches of n documents, at least one.

    >>> parts(20_000)
    [slice(0, 16384, None), slice(16384, 20000, None)]
    """
    return [slice(begin, min(begin + AT_ONCE, n)) for begin in range(0, max(1, n), AT_ONCE)]


def single(vector_NM: np.ndarray) -> Floats:
    """In 32 bits."""
    return np.asarray(vector_NM, dtype=np.float32)


def place(router: Router, document_NM: Floats, leaves: int, spill: Spill) -> Placed:
    """Leaves [n, r] where documents belong, first leaf first, and their log-probabilities; r = `leaves`, 1 or 2.

    A document without a second leaf has its first again. Vectors may be of 16 bits: batches of them become 32.
    """
    placed = [_place(router, single(document_NM[part]), leaves, spill) for part in parts(len(document_NM))]
    leaf_NR, log_prob_NR = (np.concatenate(found) for found in zip(*placed, strict=True))
    return leaf_NR, log_prob_NR


def _place(router: Router, document_NM: Floats, leaves: int, spill: Spill) -> Placed:
    count = 1 if leaves == 1 else min(CANDIDATES, router.n_leaves)
    leaf_NC, log_prob_NC = (found.numpy() for found in place_all(router, torch.from_numpy(document_NM), count))
    pick_NR = chosen(router, document_NM, leaf_NC, leaves, spill)
    return np.take_along_axis(leaf_NC, pick_NR, axis=1), np.take_along_axis(log_prob_NC, pick_NR, axis=1)


def chosen(router: Router, document_NM: Floats, leaf_NC: np.ndarray, leaves: int, spill: Spill) -> np.ndarray:
    """Which [n, r] of its nearest leaves [n, c], best first, a document lies in."""
    first_N = np.zeros(len(leaf_NC), dtype=np.int64)
    if leaves == 1:
        return first_N[:, None]
    centroid_LM, price_L = (cell.cpu().numpy() for cell in (router.cells.centroid_LM, router.cells.price_L))
    second_N = second_leaves(document_NM, leaf_NC, centroid_LM, spill, price_L, router.cells.border)
    return np.stack([first_N, second_N], axis=1)


def leaf_means(vectors_NM: Floats, leaf_N: np.ndarray, leaves: int) -> Floats:
    """Unit means [leaves, m] of the vectors of each leaf; zero for one that holds none."""
    sum_LM = np.zeros((leaves, vectors_NM.shape[1]), dtype=np.float64)
    np.add.at(sum_LM, leaf_N, vectors_NM)
    length_L1 = np.linalg.norm(sum_LM, axis=1, keepdims=True)
    return np.asarray(sum_LM / np.maximum(length_L1, 1e-12), dtype=np.float32)
