"""What stands beside ReTreever's tree: a softmax without a tree, hierarchical k-means, Gaussian mixtures."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.arrays import Floats, Ints
from rayhier.cluster.tree import hierarchical_kmeans
from rayhier.model.retreever import Representations, at_level, products, represent, stored
from rayhier.spec.train.retreever import Comparison
from rayhier.train.retreever.start import DIRECTED, bases, sampled

SCALE = 20.0
"""Factor of a difference of cosines before the sigmoid, as for every cell of k-means here."""
FEWEST_MIXED = 8
"""Fewest documents of a node that a mixture is fitted to; fewer are split by a hyperplane between two of them."""
VARIANCE = 1e-4
"""Least variance of a dimension of a mixture's component; a unit vector's dimensions have about 1/m."""


class NoTree(Representations):
    """The outputs of a tree's linear splits without the tree: a softmax over as many numbers as the tree has leaves."""

    def __init__(self, dimension: int, count: int, similarity: Comparison) -> None:
        super().__init__()
        self.planes, self.similarity = nn.Linear(dimension, count), similarity
        self.offset_K = nn.Parameter(torch.zeros(count)) if similarity == "cosine" else None

    @property
    def width(self) -> int:
        """Number of outputs."""
        return len(self.planes.weight)

    @property
    def counts(self) -> Sequence[int]:
        """Number of outputs, the one size there is."""
        return [self.width]

    def scores(self, *read: Tensor) -> Tensor:
        """Outputs [n, w] for vectors [n, m]."""
        return torch.as_tensor(self.planes(read[0]))

    def sizes(self, score_NW: Tensor) -> list[Tensor]:
        """What texts are compared by [n, w], the one size there is."""
        return [represent(F.softmax(score_NW, dim=1), self.similarity, self.offset_K)]

    @torch.no_grad()
    def start(self, vector_NM: Floats, direction_DM: Tensor, seed: int, deviation: float) -> None:
        """Start where a tree's splits do: at directions of an adapter [d, m], then at random bases.

        Outputs have mean 0 and the given deviation over some texts; the offset is what the means said.
        """
        count, dimension = self.planes.weight.shape
        draw = torch.Generator().manual_seed(seed)
        first_DM = direction_DM[: min(count, len(direction_DM) // DIRECTED)]
        self.planes.weight.copy_(torch.cat([first_DM, bases(count - len(first_DM), dimension, draw)]))
        self.planes.bias.zero_()
        score_NW = self.planes(torch.from_numpy(sampled(vector_NM, seed)))
        factor_W = deviation / score_NW.std(dim=0)
        mean_W = score_NW.mean(dim=0) * factor_W
        self.planes.bias.copy_(-mean_W)
        self.planes.weight.mul_(factor_W[:, None])
        if self.offset_K is not None:
            self.offset_K.copy_(F.softmax(mean_W, dim=0) * count - 1)


class FixedTree:
    """A binary tree that nothing trains: how far texts go left at every split."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def scores(self, vector_NM: Floats) -> Floats:
        """Scores [n, 2^D - 1] of the splits, breadth first, in log odds."""
        raise NotImplementedError

    def leaves(self, vector_NM: Floats) -> Floats:
        """Log-probabilities [n, 2^D] of the leaves."""
        parts = np.array_split(vector_NM, max(1, len(vector_NM) // 16_384))
        return np.concatenate([products(torch.from_numpy(self.scores(part)))[-1].numpy() for part in parts])

    def represent(self, vector_NM: Floats, levels: Iterable[int], similarity: Comparison) -> list[Floats]:
        """What texts are compared by at some levels, [n, 2^h] each."""
        stored_NL = stored(torch.from_numpy(self.leaves(vector_NM)))
        return [
            np.asarray(represent(torch.from_numpy(at_level(stored_NL, level)), similarity).numpy()) for level in levels
        ]


class KmeansTree(FixedTree):
    """Hierarchical spherical k-means, two children a node: the nearer centroid is the more probable child."""

    def __init__(self, vector_NM: Floats, depth: int, seed: int) -> None:
        super().__init__(depth)
        levels = hierarchical_kmeans(sampled(vector_NM, seed), 2, depth, seed).centroids
        self.plane_SM = np.concatenate([level[:, 0] - level[:, 1] for level in levels])

    def scores(self, vector_NM: Floats) -> Floats:
        """Scores [n, 2^D - 1]: 20 times the difference of the cosines to both centroids."""
        return np.asarray(SCALE * vector_NM @ self.plane_SM.T, dtype=np.float32)


class MixtureTree(FixedTree):
    """A mixture of two Gaussians with diagonal covariances at every node, fitted to the documents that go there."""

    def __init__(self, vector_NM: Floats, depth: int, seed: int) -> None:
        super().__init__(depth)
        rows, dimension = sampled(vector_NM, seed), vector_NM.shape[1]
        self.mean_S2M = np.zeros((2**depth - 1, 2, dimension), np.float32)
        self.precision_S2M = np.ones((2**depth - 1, 2, dimension), np.float32)
        self.offset_S = np.zeros(2**depth - 1, np.float32)
        own: dict[int, Ints] = {0: np.arange(len(rows))}
        for split in range(2**depth - 1):
            here = own.pop(split)
            vector_HM = rows[here]
            if len(here) >= FEWEST_MIXED:
                mixture = GaussianMixture(
                    2, covariance_type="diag", reg_covar=VARIANCE, random_state=seed, max_iter=100
                )
                mixture.fit(vector_HM)
                precision_2M, weight_2 = 1 / mixture.covariances_, np.log(np.maximum(mixture.weights_, 1e-9))
                self.mean_S2M[split], self.precision_S2M[split] = mixture.means_, precision_2M
                weight_2 = weight_2 + 0.5 * np.log(precision_2M).sum(axis=1)
                self.offset_S[split] = weight_2[0] - weight_2[1]
            elif len(here) > 1:
                self.mean_S2M[split] = vector_HM[:2]
            far_H, other_H = (
                ((vector_HM - self.mean_S2M[split, side]) ** 2) @ self.precision_S2M[split, side] for side in (0, 1)
            )
            left_H = self.offset_S[split] - 0.5 * (far_H - other_H) > 0
            own[2 * split + 1], own[2 * split + 2] = here[left_H], here[~left_H]

    def scores(self, vector_NM: Floats) -> Floats:
        """Scores [n, 2^D - 1]: the log odds of the two components."""
        weight_S2M = self.precision_S2M * self.mean_S2M
        constant_S2 = (weight_S2M * self.mean_S2M).sum(axis=2)
        far_NS, other_NS = (
            vector_NM**2 @ self.precision_S2M[:, side].T - 2 * vector_NM @ weight_S2M[:, side].T + constant_S2[:, side]
            for side in (0, 1)
        )
        return np.asarray(self.offset_S - 0.5 * (far_NS - other_NS), dtype=np.float32)
