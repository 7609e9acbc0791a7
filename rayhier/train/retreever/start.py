"""The start of a tree's splits: at random, at directions of a trained linear map, or between halves by k-means.

The functions `start_…` centre the splits' scores and return the means that they removed [2^depth - 1].
"""

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Floats
from rayhier.cluster.tree import hierarchical_kmeans
from rayhier.model.retreever import HIDDEN, Splits

MOST_READ = 200_000
"""Most documents that a start reads; of more, a random sample."""
DIRECTED = 3
"""Dimensions for each split that starts at a direction of the linear map: the last directions are mostly noise."""


def sizes(dimension: int) -> list[int]:
    """List the sizes of vectors that a linear map of `dimension` numbers is trained for: powers of two, then all.

    >>> sizes(384)
    [2, 4, 8, 16, 32, 64, 128, 256, 384]
    """
    powers = [1 << power for power in range(1, dimension.bit_length()) if 1 << power < dimension]
    return [*powers, dimension]


def principal(vectors_NM: Floats, seed: int) -> Tensor:
    """Compute the directions [m, m] of the vectors' principal components, the widest first."""
    rows = sampled(vectors_NM, seed)
    _, axis_MM = np.linalg.eigh(np.cov(rows, rowvar=False))
    return torch.from_numpy(np.ascontiguousarray(axis_MM[:, ::-1].T, dtype=np.float32))


@torch.no_grad()
def start_at_directions(splits: Splits, direction_DM: Tensor, vectors_NM: Floats, seed: int) -> Tensor:
    """Set the splits' hyperplanes to the first third of the directions [d, m], from the root down, then at random.

    Random rows come in orthogonal bases: a complete basis keeps inner products as they are. Where splits read hidden
    units, these are set to the first rows and their opposites, and a split reads one or a random mixture of them.
    Returns the means of scores that were removed [splits].
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
    """Draw `count` random directions [count, m], from random orthogonal bases one after the other."""
    bases = [
        torch.linalg.qr(torch.randn(dimension, dimension, generator=draw))[0]
        for _ in range(max(1, -(-count // dimension)))
    ]
    return torch.cat(bases)[:count]


@torch.no_grad()
def start_at_random(splits: Splits, vectors_NM: Floats, seed: int) -> Tensor:
    """Start splits at random directions; returns the means of scores that were removed [splits]."""
    splits.planes.weight.copy_(torch.randn(splits.planes.weight.shape, generator=torch.Generator().manual_seed(seed)))
    return splits.scale(torch.from_numpy(sampled(vectors_NM, seed)))


@torch.no_grad()
def start_between_halves(splits: Splits, vectors_NM: Floats, seed: int) -> Tensor:
    """Start each split between two halves, by k-means, of its node's documents: at the difference of their centroids.

    A node with fewer than two documents splits at random. Returns the means of scores that were removed [splits].
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
    """Return vectors [n, m], or a random sample of 200,000 where there are more."""
    if len(vectors_NM) <= MOST_READ:
        return vectors_NM
    rows = np.sort(np.random.default_rng(seed).choice(len(vectors_NM), MOST_READ, replace=False))
    return np.asarray(vectors_NM[rows])
