"""ReTreever's tree: the probability that a text belongs to each node of every level of a perfect binary tree.

"ReTreever: Tree-based Coarse-to-Fine Representations for Retrieval" (Gupta et al., 2025), section 3. A split at every
inner node says how probably a text goes left; all splits are computed in one pass. The nodes of a level are a
distribution, and each node is the sum of its children, so that the 2^h numbers of level h represent a text coarsely
and those of the leaves finely.

Shapes: N texts, C others, M embedding size, D depth, S = 2^D - 1 splits, L = 2^D leaves, H hidden units. Splits are
breadth first: the children of split s are 2s + 1, to the left, and 2s + 2.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DEEPEST = 0.7
"""Standard deviation of the scores of the deepest splits at the start; a level up it is √2 smaller."""
HIDDEN = 128
"""Hidden units of a trunk that all splits share."""
DROPPED = 0.2
"""Share of the hidden units of a trunk that a training step leaves out."""


class Splits(nn.Module):
    """Scores of every split for texts by their vectors: how far a text goes left (> 0) or right."""

    def __init__(self, dimension: int, depth: int, trunk: nn.Module | None = None) -> None:
        """Make a hyperplane for each split, over the vectors or what a trunk of HIDDEN outputs makes of them."""
        super().__init__()
        self.depth, self.trunk = depth, trunk
        self.planes = nn.Linear(dimension if trunk is None else HIDDEN, 2**depth - 1)

    def forward(self, vector_NM: Tensor) -> Tensor:
        """Scores [N, S]."""
        scores: Tensor = self.planes(vector_NM if self.trunk is None else self.trunk(vector_NM))
        return scores

    @torch.no_grad()
    def scale(self, vector_NM: Tensor) -> None:
        """Move and scale scores: over these texts each has mean 0, and DEEPEST as deviation where it is deepest.

        ValueError where a split gives all texts one score: equal distributions have no gradient.
        """
        was_training = self.training
        score_NS = self.eval()(vector_NM)
        self.train(was_training)
        spread_S = score_NS.std(dim=0, correction=0)
        if not bool((spread_S > 0).all()):
            flat = int((~(spread_S > 0)).sum())
            raise ValueError(f"{flat} of {len(spread_S)} splits give all texts one score; allowed: splits that differ")
        factor_S = deviations(self.depth).to(spread_S) / spread_S
        self.planes.bias.sub_(score_NS.mean(dim=0)).mul_(factor_S)
        self.planes.weight.mul_(factor_S[:, None])


def mlp(dimension: int) -> nn.Module:
    """Make the trunk of MLP splits."""
    return nn.Sequential(nn.Linear(dimension, HIDDEN), nn.ReLU(), nn.Dropout(DROPPED))


def level_of_splits(depth: int) -> Tensor:
    """Level [S] of every split, 0 at the root.

    >>> level_of_splits(3)
    tensor([0, 1, 1, 2, 2, 2, 2])
    """
    return torch.arange(depth).repeat_interleave(2 ** torch.arange(depth))


def deviations(depth: int) -> Tensor:
    """Standard deviation [S] that every split's scores start with.

    >>> deviations(3)
    tensor([0.3500, 0.4950, 0.4950, 0.7000, 0.7000, 0.7000, 0.7000])
    """
    return DEEPEST * 2.0 ** (-(depth - 1 - level_of_splits(depth)) / 2)


def products(score_NS: Tensor) -> list[Tensor]:
    """Log-probabilities [N, 2^h] of the nodes of levels 1 to D: the product of the splits' sigmoids along a path.

    >>> [level.exp() for level in products(torch.tensor([[0.0, torch.inf, -torch.inf]]))]
    [tensor([[0.5000, 0.5000]]), tensor([[0.5000, 0.0000, 0.0000, 0.5000]])]
    """
    levels, above_NK = [], score_NS.new_zeros(len(score_NS), 1)
    while (begin := above_NK.shape[1] - 1) < score_NS.shape[1]:
        own_NK = score_NS[:, begin : 2 * begin + 1]
        both_NK2 = torch.stack([F.logsigmoid(own_NK), F.logsigmoid(-own_NK)], dim=2)
        above_NK = (above_NK.unsqueeze(2) + both_NK2).flatten(1)
        levels.append(above_NK)
    return levels


def sums(leaf_NL: Tensor) -> list[Tensor]:
    """Log-probabilities [N, 2^h] of the nodes of levels 1 to D from those of the leaves: parents sum their children.

    >>> [level.exp() for level in sums(torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log())]
    [tensor([[0.3000, 0.7000]]), tensor([[0.1000, 0.2000, 0.3000, 0.4000]])]
    """
    levels = [leaf_NL]
    while levels[0].shape[1] > 2:
        levels.insert(0, torch.logsumexp(levels[0].reshape(len(leaf_NL), -1, 2), dim=2))
    return levels


class LearnedPropagation(nn.Module):
    """An MLP for every leaf over the probabilities of the splits on its path, added to the log of their product."""

    path_LD: Tensor
    sign_LD: Tensor

    def __init__(self, depth: int, hidden: int = 16, dropout: float = 0.1) -> None:
        """Make 2^D small MLPs whose output starts at zero, where the leaves are those of the product."""
        super().__init__()
        leaves = 2**depth
        self.weight_LDH = nn.Parameter(torch.randn(leaves, depth, hidden) / depth**0.5)
        self.bias_LH = nn.Parameter(torch.zeros(leaves, hidden))
        self.output_LH = nn.Parameter(torch.zeros(leaves, hidden))
        self.dropout = nn.Dropout(dropout)
        leaf_L1, up_D = torch.arange(leaves)[:, None], torch.arange(depth, 0, -1)
        self.register_buffer("path_LD", 2 ** (depth - up_D) - 1 + (leaf_L1 >> up_D), persistent=False)
        self.register_buffer("sign_LD", 1.0 - 2.0 * ((leaf_L1 >> (up_D - 1)) & 1), persistent=False)

    def forward(self, score_NS: Tensor) -> list[Tensor]:
        """Log-probabilities [N, 2^h] of the nodes of levels 1 to D."""
        probability_NLD = torch.sigmoid(score_NS[:, self.path_LD] * self.sign_LD)
        hidden_NLH = F.relu(torch.einsum("nld,ldh->nlh", probability_NLD, self.weight_LDH) + self.bias_LH)
        added_NL = torch.einsum("nlh,lh->nl", self.dropout(hidden_NLH), self.output_LH)
        return sums(F.log_softmax(products(score_NS)[-1] + added_NL, dim=1))


class NodeTree(nn.Module):
    """A text's distribution over the nodes of each level, from its scores at the splits."""

    def __init__(self, splits: nn.Module, propagation: LearnedPropagation | None = None, dropout: float = 0.0) -> None:
        """Join splits and a propagation, by default products; `dropout` is the share of scores set to 0 in training."""
        super().__init__()
        self.splits, self.propagation, self.dropout = splits, propagation, nn.Dropout(dropout)

    def forward(self, vector_NM: Tensor) -> list[Tensor]:
        """Log-probabilities [N, 2^h] of the nodes of levels 1 to D."""
        return self.levels(self.splits(vector_NM))

    def levels(self, score_NS: Tensor) -> list[Tensor]:
        """Log-probabilities [N, 2^h] of the nodes of levels 1 to D from scores of the splits."""
        dropped_NS = self.dropout(score_NS)
        return products(dropped_NS) if self.propagation is None else list(self.propagation(dropped_NS))


Similarity = Literal["tv", "cosine"]


def represent(probability_NK: Tensor, similarity: Similarity) -> Tensor:
    """Make what texts are compared by at a level: probabilities p [N, K], or for cosine unit vectors of K p - 1."""
    if similarity == "tv":
        return probability_NK
    return F.normalize(probability_NK * probability_NK.shape[1] - 1, dim=1)


def similarities(first_NK: Tensor, second_CK: Tensor, similarity: Similarity) -> Tensor:
    """Similarity [N, C] of represented texts: negative total variation -½‖a - b‖₁ (Eq. 1), or the cosine.

    >>> similarities(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0], [0.5, 0.5]]), "tv")
    tensor([[-0.5000, -0.0000]])
    """
    if similarity == "tv":
        return -0.5 * torch.cdist(first_NK, second_CK, p=1)
    return first_NK @ second_CK.T


def symmetric_info_nce(score_NN: Tensor, spared_NN: Tensor) -> Tensor:
    """Sum over pairs of a query and its document, on the diagonal, of the cross-entropy in both directions.

    `spared_NN` says which documents [query, document] are left out, as they answer too.
    """
    own_N = torch.arange(len(score_NN), device=score_NN.device)
    told_NN = score_NN.masked_fill(spared_NN, -torch.inf)
    return F.cross_entropy(told_NN, own_N, reduction="sum") + F.cross_entropy(told_NN.T, own_N, reduction="sum")


def level_weights(schedule: str, depth: int, done: float, drawn: float) -> Sequence[float]:
    """Weight of the loss of levels 1 to D at a share `done` of the steps; `drawn` is uniform in [0, 1).

    `constant` trains the leaves; `linear` and `exponential` deepen step by step; `stochastic` draws a level with
    P(d) ∝ d²; `matryoshka` trains every level at once.

    >>> level_weights("linear", 4, 0.5, 0.0), level_weights("stochastic", 2, 0.0, 0.19)
    ([0.0, 0.0, 1.0, 0.0], [1.0, 0.0])
    """
    if schedule == "matryoshka":
        return [1.0] * depth
    match schedule:
        case "constant":
            level = depth
        case "linear":
            level = min(depth, 1 + int(done * depth))
        case "exponential":
            level = min(depth, 1 + int(depth * (2.0**done - 1)))
        case "stochastic":
            total, level, below = sum(d * d for d in range(1, depth + 1)), 0, 0
            while below <= drawn * total and level < depth:
                level += 1
                below += level * level
        case _:
            raise ValueError(
                f"schedule: got {schedule!r}; allowed: constant, linear, exponential, stochastic, matryoshka"
            )
    return [float(own == level) for own in range(1, depth + 1)]
