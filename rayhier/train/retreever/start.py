"""Where a tree's splits start: at random, at directions of a Matryoshka adapter, or between halves of k-means.

Every start returns the mean scores that it removed [2^D - 1].
"""

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Floats
from rayhier.cluster.tree import hierarchical_kmeans
from rayhier.model.retreever import HIDDEN, Splits

MOST_READ = 200_000
"""Most documents that a start reads."""
DIRECTED = 3
"""Dimensions for each split that starts at a direction of the adapter: the last directions are mostly noise."""


def sizes(dimension: int) -> list[int]:
    """List the sizes of an adapter's representations: 2, 4, 8, … and all numbers.

    >>> sizes(384)
    [2, 4, 8, 16, 32, 64, 128, 256, 384]
    """
    powers = [1 << power for power in range(1, dimension.bit_length()) if 1 << power < dimension]
    return [*powers, dimension]


def principal(vectors_NM: Floats, seed: int) -> Tensor:
    """Directions [m, m] of the vectors' principal components, the widest first."""
    rows = sampled(vectors_NM, seed)
    _, axis_MM = np.linalg.eigh(np.cov(rows, rowvar=False))
    return torch.from_numpy(np.ascontiguousarray(axis_MM[:, ::-1].T, dtype=np.float32))


@torch.no_grad()
def start_at_directions(splits: Splits, direction_DM: Tensor, vectors_NM: Floats, seed: int) -> Tensor:
    """Start splits at directions [d, m], the first at the root; splits below the first third at random directions.

    Random directions come in bases of orthogonal ones: a whole basis keeps inner products as they are. A trunk starts
    at the first directions and their opposites, which a split then adds up to one.
    """
    planes, draw = splits.planes, torch.Generator().manual_seed(seed)
    count, dimension = len(planes.weight), direction_DM.shape[1]
    if splits.trunk is None:
        first_DM = direction_DM[: min(count, len(direction_DM) // DIRECTED)]
        planes.weight.copy_(torch.cat([first_DM, bases(count - len(first_DM), dimension, draw)]))
    else:
        half = min(HIDDEN // 2, len(direction_DM))
        first_HM = direction_DM[:half]
        splits.trunk.hidden.weight[: 2 * half].copy_(torch.cat([first_HM, -first_HM]))
        splits.trunk.hidden.bias[: 2 * half].zero_()
        mixture_SH = torch.cat([torch.eye(half)[:count], torch.randn(max(0, count - half), half, generator=draw)])
        planes.weight.zero_()
        planes.weight[:, : 2 * half].copy_(torch.cat([mixture_SH, -mixture_SH], dim=1))
    return splits.scale(torch.from_numpy(sampled(vectors_NM, seed)))


def bases(count: int, dimension: int, draw: torch.Generator) -> Tensor:
    """Draw `count` directions [count, m]: random orthogonal bases, one after the other."""
    bases = [
        torch.linalg.qr(torch.randn(dimension, dimension, generator=draw))[0]
        for _ in range(max(1, -(-count // dimension)))
    ]
    return torch.cat(bases)[:count]


@torch.no_grad()
def start_at_random(splits: Splits, vectors_NM: Floats, seed: int) -> Tensor:
    """Start splits at random directions."""
    splits.planes.weight.copy_(torch.randn(splits.planes.weight.shape, generator=torch.Generator().manual_seed(seed)))
    return splits.scale(torch.from_numpy(sampled(vectors_NM, seed)))


@torch.no_grad()
def start_between_halves(splits: Splits, vectors_NM: Floats, seed: int) -> Tensor:
    """Start splits at the difference of the centroids of two halves of a node's documents, found by k-means.

    A node with fewer than two documents splits at random.
    """
    rows = sampled(vectors_NM, seed)
    draw = torch.Generator().manual_seed(seed)
    levels = hierarchical_kmeans(rows, 2, splits.depth, seed).centroids
    for level, centroid_N2M in enumerate(map(torch.from_numpy, levels)):
        plane_NM = centroid_N2M[:, 0] - centroid_N2M[:, 1]
        whole_N = centroid_N2M.any(dim=2).all(dim=1) & plane_NM.any(dim=1)
        drawn_NM = torch.randn(plane_NM.shape, generator=draw)
        first = 2**level - 1
        splits.planes.weight[first : 2 * first + 1] = torch.where(whole_N[:, None], plane_NM, drawn_NM)
    return splits.scale(torch.from_numpy(rows))


def sampled(vectors_NM: Floats, seed: int) -> Floats:
    """Return vectors [n, m] as float32, or a random sample where there are more than a start reads."""
    if len(vectors_NM) <= MOST_READ:
        return vectors_NM
    rows = np.sort(np.random.default_rng(seed).choice(len(vectors_NM), MOST_READ, replace=False))
    return np.asarray(vectors_NM[rows])
