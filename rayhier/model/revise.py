"""Split leaves in two, move them, or give them up, without training (our method, after Xu et al., "SPFresh", 2023).

Documents follow centroids c. Queries follow learned weights w, which began as s times the centroids. So a leaf that
moves from c to c' gets w + s (c' - c). Both halves of a leaf start with its weights and bias.

Shapes: L leaves, S leaves to change, M embedding size.
"""

from collections.abc import Sequence

import numpy as np

from rayhier.arrays import Floats
from rayhier.model.opened_router import LearnedIvf


def resized(router: LearnedIvf, leaves: int | None = None) -> LearnedIvf:
    """Copy a router into a router with `leaves` leaves (None: equally many). Additional leaves are not in use."""
    further = (leaves or router.n_leaves) - router.n_leaves
    rows, unused = ("W", "log_size_L", "cells.centroid_LM"), {"b": -np.inf, "cells.price_L": np.inf}
    weights = {name: array.copy() for name, array in router.weights.items()}
    for name, array in weights.items():
        if name in rows or name in unused or (name == "cells.group_L" and len(array)):
            padding = [(0, further), *[(0, 0)] * (array.ndim - 1)]
            weights[name] = np.pad(array, padding, constant_values=unused.get(name, 0))
    return LearnedIvf({**router.config, "leaves": len(weights["b"])}, weights)


def split(router: LearnedIvf, leaf_S: Sequence[int], centroid_S2M: Floats) -> tuple[LearnedIvf, list[int]]:
    """Split leaves in halves with unit centroids [s, 2, m], in a new router.

    The first half keeps the leaf's number. The second half takes the number of an unused leaf, or else a new number.
    Returns the router and the numbers of second halves. Both halves get price 0.
    """
    unused = np.flatnonzero(~router.in_use).tolist()[: len(leaf_S)]
    further = len(leaf_S) - len(unused)
    number_S = [*unused, *range(router.n_leaves, router.n_leaves + further)]
    revised, before_S, after_S = resized(router, router.n_leaves + further), list(leaf_S), number_S
    cells = revised.cells
    for array in [revised.W, revised.b, cells.centroid_LM, *([cells.group_L] if len(cells.group_L) else [])]:
        array[after_S] = array[before_S]
    cells.price_L[before_S + after_S] = 0
    move(revised, before_S, centroid_S2M[:, 0])
    move(revised, after_S, centroid_S2M[:, 1])
    return revised, number_S


def move(router: LearnedIvf, leaf_S: Sequence[int], centroid_SM: Floats) -> None:
    place_S = list(leaf_S)
    router.W[place_S] += weight_scale(router) * (centroid_SM - router.cells.centroid_LM[place_S])
    router.cells.centroid_LM[place_S] = centroid_SM


def give_up(router: LearnedIvf, leaf_S: Sequence[int]) -> None:
    """Give leaves up, in place. Then no query visits these leaves, and no document is placed there."""
    router.b[list(leaf_S)] = -np.inf
    router.cells.price_L[list(leaf_S)] = np.inf


def weight_scale(router: LearnedIvf) -> float:
    return float((router.W * router.cells.centroid_LM)[router.in_use].sum(axis=1).mean())
