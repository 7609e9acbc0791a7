"""Leaves that are split in two, moved or given up without training (our method, after Xu et al., "SPFresh", 2023).

Documents follow centroids c, and queries follow learned weights w, which began as s times the centroids. So a leaf
that moves from c to c' gets w + s (c' - c), and halves begin with the leaf's weights and bias.

Shapes: L leaves, S leaves to change, M embedding size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rayhier.model.learned_ivf import LearnedIvfRouter


@torch.no_grad()
def resized(router: LearnedIvfRouter, leaves: int | None = None) -> LearnedIvfRouter:
    """Copy a router into one with `leaves` leaves (None: as many). Further leaves are not in use."""
    before, after = router.n_leaves, leaves or router.n_leaves
    copied = LearnedIvfRouter(router.dimension, after, router.rank, router.cells.groups).to(router.device)
    copied.b.fill_(-torch.inf)
    copied.cells.price_L.fill_(torch.inf)
    parts = [(copied.W, router.W), (copied.b, router.b), (copied.log_size_L, router.log_size_L)]
    parts += [(copied.cells.centroid_LM, router.cells.centroid_LM), (copied.cells.price_L, router.cells.price_L)]
    parts += [(copied.cells.group_L, router.cells.group_L)] if router.cells.groups else []
    for tensor, original in parts:
        tensor[:before] = original
    cells = [(copied.cells.border, router.cells.border), (copied.cells.group_GM, router.cells.group_GM)]
    for tensor, original in [(copied.V, router.V), (copied.U, router.U), *cells]:
        tensor.copy_(original)
    return copied.eval().requires_grad_(requires_grad=False)


def split(router: LearnedIvfRouter, leaf_S: Sequence[int], centroid_S2M: Tensor) -> tuple[LearnedIvfRouter, list[int]]:
    """Split leaves in halves with these unit centroids [s, 2, m], in a new router.

    The first half keeps the leaf's number. Second halves take the numbers of unused leaves, then new ones, which are
    returned too. The halves have no price.
    """
    unused = (~in_use(router)).nonzero()[:, 0].tolist()[: len(leaf_S)]
    further = len(leaf_S) - len(unused)
    number_S = [*unused, *range(router.n_leaves, router.n_leaves + further)]
    revised, before_S, after_S = resized(router, router.n_leaves + further), list(leaf_S), number_S
    cells = revised.cells
    tensors = [revised.W, revised.b, cells.centroid_LM, *([cells.group_L] if cells.groups else [])]
    for tensor in tensors:
        tensor[after_S] = tensor[before_S]
    cells.price_L[before_S + after_S] = 0
    move(revised, before_S, centroid_S2M[:, 0])
    move(revised, after_S, centroid_S2M[:, 1])
    return revised, number_S


def move(router: LearnedIvfRouter, leaf_S: Sequence[int], centroid_SM: Tensor) -> None:
    place_S = list(leaf_S)
    router.W[place_S] += weight_scale(router) * (centroid_SM - router.cells.centroid_LM[place_S])
    router.cells.centroid_LM[place_S] = centroid_SM


def give_up(router: LearnedIvfRouter, leaf_S: Sequence[int]) -> None:
    """Give leaves up, in place: no query visits them and no document is placed there."""
    router.b[list(leaf_S)] = -torch.inf
    router.cells.price_L[list(leaf_S)] = torch.inf


def in_use(router: LearnedIvfRouter) -> Tensor:
    return torch.isfinite(router.b)


def weight_scale(router: LearnedIvfRouter) -> float:
    used_L, centroid_LM = in_use(router), router.cells.centroid_LM
    return float((router.W[used_L] * centroid_LM[used_L]).sum(dim=1).mean())
