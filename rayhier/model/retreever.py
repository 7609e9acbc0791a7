"""ReTreever's tree: the probability that a text belongs to each node of every level of a perfect binary tree.

"ReTreever: Tree-based Coarse-to-Fine Representations for Retrieval" (Gupta et al., 2025), section 3. A split at every
inner node gives the probability that a text goes left. All splits are computed in one pass. The nodes of a level are a
distribution, and each node is the sum of its children. So the 2^h numbers of level h represent a text coarsely, and the
numbers of the leaves represent it finely.

Shapes: N texts, C texts that they are compared with, T tokens, M embedding size, D depth, S = 2^D - 1 splits, L = 2^D
leaves, H hidden units, A heads, E size of a head. Splits are breadth first: the children of split s are 2s + 1, to the
left, and 2s + 2.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.model.cells import Cells
from rayhier.model.encoded import Reader
from rayhier.spec.router.retreever import Aggregation
from rayhier.spec.train.retreever import Comparison

DEEPEST = 0.7
"""Standard deviation of the deepest splits' scores at the start. Each level above has a value √2 times smaller."""
HEADS, HEAD = 8, 64
ANCESTRY = 8
"""Hidden units of the small network that adds to a split's score by its ancestors' scores."""
HIDDEN = 128
"""Hidden units that all splits of type `mlp` share."""
SETTLED_AT_ONCE = 1_024
DROPPED = 0.2


class Trunk(nn.Module):
    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.hidden, self.dropout = nn.Linear(dimension, HIDDEN), nn.Dropout(DROPPED)

    def forward(self, vector_NM: Tensor) -> Tensor:
        return torch.as_tensor(self.dropout(F.relu(self.hidden(vector_NM))))


class Splits(nn.Module):
    """A hyperplane over texts' vectors for each split of a tree. Texts with a score above 0 go left, others right."""

    def __init__(self, dimension: int, depth: int, trunk: Trunk | None = None) -> None:
        """Make 2^depth - 1 hyperplanes over vectors of size `dimension`, or over the hidden units of `trunk`."""
        super().__init__()
        self.depth, self.trunk = depth, trunk
        self.planes = nn.Linear(dimension if trunk is None else HIDDEN, 2**depth - 1)

    def forward(self, vector_NM: Tensor) -> Tensor:
        scores: Tensor = self.planes(vector_NM if self.trunk is None else self.trunk(vector_NM))
        return scores

    @torch.no_grad()
    def scale(self, vector_NM: Tensor) -> Tensor:
        """Shift and scale each split's scores. Over `vector_NM` scores get mean 0 and the level's deviation.

        Returns the removed means [splits]. ValueError if a split gives all texts one score, which has no gradient.
        """
        was_training = self.training
        self.eval()
        read_NH = vector_NM if self.trunk is None else self.trunk(vector_NM)
        self.train(was_training)
        blocks = (slice(begin, begin + SETTLED_AT_ONCE) for begin in range(0, len(self.planes.weight), SETTLED_AT_ONCE))
        parts = [_spread(F.linear(read_NH, self.planes.weight[block], self.planes.bias[block])) for block in blocks]
        mean_S, spread_S = (torch.cat(part) for part in zip(*parts, strict=True))
        return _settle(self.planes, mean_S, spread_S, self.depth)


class AttentionSplits(nn.Module):
    """Scores of every split of a tree, by attention from the split's learned embedding to a text's tokens."""

    path_SD: Tensor
    within_SD: Tensor

    def __init__(self, dimension: int, depth: int, aggregation: Aggregation = "ancestors") -> None:
        """Make an embedding for each of 2^depth - 1 splits, and one attention by which embeddings read a text's tokens.

        One linear map makes the scores of all splits (`shared`), or each split has a linear map (`linear`). `ancestors`
        is `linear` plus a small MLP over the scores of the split and its ancestors.
        """
        super().__init__()
        splits, width = 2**depth - 1, HEADS * HEAD
        self.depth, self.aggregation = depth, aggregation
        self.embedding_SM = nn.Parameter(torch.randn(splits, dimension) / dimension**0.5)
        self.query, self.key, self.value = (nn.Linear(dimension, width, bias=False) for _ in range(3))
        self.planes = nn.Linear(width, 1 if aggregation == "shared" else splits)
        if aggregation == "ancestors":
            self.weight_SDH = nn.Parameter(torch.randn(splits, depth, ANCESTRY) / depth**0.5)
            self.bias_SH = nn.Parameter(torch.zeros(splits, ANCESTRY))
            self.output_SH = nn.Parameter(torch.randn(splits, ANCESTRY) / 10)
        split_S1, up_D = torch.arange(splits)[:, None], torch.arange(depth)
        above_SD = ((split_S1 + 1) >> up_D) - 1
        self.register_buffer("path_SD", above_SD.clamp(min=0), persistent=False)
        self.register_buffer("within_SD", (above_SD >= 0).float(), persistent=False)

    def forward(self, token_NTM: Tensor, mask_NT: Tensor) -> Tensor:
        """Compute scores [n, splits] of texts from tokens' vectors [n, t, m] and a mask [n, t], 1 on tokens."""
        score_NS = self._own(token_NTM, mask_NT)
        if self.aggregation != "ancestors":
            return score_NS
        above_NSD = score_NS[:, self.path_SD] * self.within_SD
        hidden_NSH = F.relu(torch.einsum("nsd,sdh->nsh", above_NSD, self.weight_SDH) + self.bias_SH)
        return score_NS + torch.einsum("nsh,sh->ns", hidden_NSH, self.output_SH)

    def _own(self, token_NTM: Tensor, mask_NT: Tensor) -> Tensor:
        query_ASE = self.query(self.embedding_SM).unflatten(1, (HEADS, HEAD)).transpose(0, 1)
        key_NATE, value_NATE = (
            part(token_NTM.float()).unflatten(2, (HEADS, HEAD)).transpose(1, 2) for part in (self.key, self.value)
        )
        mask_N11T = mask_NT.bool()[:, None, None]
        read_NASE = F.scaled_dot_product_attention(
            query_ASE.expand(len(token_NTM), -1, -1, -1), key_NATE, value_NATE, mask_N11T
        )
        read_NSX = read_NASE.transpose(1, 2).flatten(2)
        if self.aggregation == "shared":
            return torch.as_tensor(self.planes(read_NSX)).squeeze(2)
        return torch.einsum("nsx,sx->ns", read_NSX, self.planes.weight) + self.planes.bias

    @torch.no_grad()
    def scale(self, token_NTM: Tensor, mask_NT: Tensor) -> Tensor:
        """Shift scores to mean 0 and scale them to the level's deviation. `shared` treats all splits as one."""
        score_NS = self._own(token_NTM, mask_NT)
        shared = self.aggregation == "shared"
        removed = _settle(self.planes, *_spread(score_NS.reshape(-1, 1) if shared else score_NS), self.depth)
        return removed.expand(score_NS.shape[1])


@torch.no_grad()
def _settle(planes: nn.Linear, mean_S: Tensor, spread_S: Tensor, depth: int) -> Tensor:
    if not bool((spread_S > 0).all()):
        flat = int((~(spread_S > 0)).sum())
        raise ValueError(f"{flat} of {len(spread_S)} splits give all texts one score; allowed: splits that differ")
    target_S = deviations(depth) if len(spread_S) > 1 else torch.tensor([DEEPEST])
    factor_S = target_S.to(spread_S) / spread_S
    planes.bias.sub_(mean_S).mul_(factor_S)
    planes.weight.mul_(factor_S[:, None])
    return mean_S * factor_S


def _spread(score_NS: Tensor) -> tuple[Tensor, Tensor]:
    return score_NS.mean(dim=0), score_NS.std(dim=0, correction=0)


def level_of_splits(depth: int) -> Tensor:
    """Return the level [splits] of every split in a tree of `depth` levels, 0 at the root.

    >>> level_of_splits(3)
    tensor([0, 1, 1, 2, 2, 2, 2])
    """
    return torch.arange(depth).repeat_interleave(2 ** torch.arange(depth))


def deviations(depth: int) -> Tensor:
    """Return the standard deviation [splits] of every split's scores at the start of training.

    >>> deviations(3)
    tensor([0.3500, 0.4950, 0.4950, 0.7000, 0.7000, 0.7000, 0.7000])
    """
    return DEEPEST * 2.0 ** (-(depth - 1 - level_of_splits(depth)) / 2)


def products(score_NS: Tensor) -> list[Tensor]:
    """Compute log-probabilities [n, 2^h] of the nodes at each level from splits' scores [n, splits].

    A node's probability is the product along its path of sigmoid(score) to the left, sigmoid(-score) to the right.

    >>> [level.exp() for level in products(torch.tensor([[0.0, torch.inf, -torch.inf]]))]
    [tensor([[0.5000, 0.5000]]), tensor([[0.5000, 0.0000, 0.0000, 0.5000]])]
    """
    levels, above_NK = [], score_NS.new_zeros(len(score_NS), 1)
    while (begin := above_NK.shape[1] - 1) < score_NS.shape[1]:
        score_NK = score_NS[:, begin : 2 * begin + 1]
        both_NK2 = torch.stack([F.logsigmoid(score_NK), F.logsigmoid(-score_NK)], dim=2)
        above_NK = (above_NK.unsqueeze(2) + both_NK2).flatten(1)
        levels.append(above_NK)
    return levels


def sums(leaf_NL: Tensor) -> list[Tensor]:
    """Compute log-probabilities [n, 2^h] of each level's nodes from leaves' log-probabilities [n, leaves].

    >>> [level.exp() for level in sums(torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log())]
    [tensor([[0.3000, 0.7000]]), tensor([[0.1000, 0.2000, 0.3000, 0.4000]])]
    """
    levels = [leaf_NL]
    while levels[0].shape[1] > 2:
        levels.insert(0, torch.logsumexp(levels[0].reshape(len(leaf_NL), -1, 2), dim=2))
    return levels


class LearnedPropagation(nn.Module):
    """Corrects the product of probabilities on each leaf's path by a small MLP for the leaf."""

    path_LD: Tensor
    sign_LD: Tensor

    def __init__(self, depth: int, hidden: int = 16, dropout: float = 0.1) -> None:
        """Make an MLP for each of 2^depth leaves. Its output starts at 0, which keeps the product."""
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
        probability_NLD = torch.sigmoid(score_NS[:, self.path_LD] * self.sign_LD)
        hidden_NLH = F.relu(torch.einsum("nld,ldh->nlh", probability_NLD, self.weight_LDH) + self.bias_LH)
        added_NL = torch.einsum("nlh,lh->nl", self.dropout(hidden_NLH), self.output_LH)
        return sums(F.log_softmax(products(score_NS)[-1] + added_NL, dim=1))


class NodeTree(nn.Module):
    def __init__(
        self, splits: Splits | AttentionSplits, propagation: LearnedPropagation | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.splits, self.propagation, self.dropout = splits, propagation, nn.Dropout(dropout)

    def forward(self, *read: Tensor) -> list[Tensor]:
        return self.levels(self.splits(*read))

    def levels(self, score_NS: Tensor) -> list[Tensor]:
        dropped_NS = self.dropout(score_NS)
        return products(dropped_NS) if self.propagation is None else list(self.propagation(dropped_NS))


def represent(probability_NK: Tensor, similarity: Comparison, offset_K: Tensor | None = None) -> Tensor:
    """Make texts' vectors from probabilities p [n, k] at a level: p for `tv`, and k·p - 1 at unit length for cosine."""
    if similarity == "tv":
        return probability_NK
    centred_NK = probability_NK * probability_NK.shape[1] - 1
    return F.normalize(centred_NK if offset_K is None else centred_NK + offset_K, dim=1)


def similarities(first_NK: Tensor, second_CK: Tensor, similarity: Comparison) -> Tensor:
    """Compute similarities [n, c] of texts' vectors at a level: -½‖a - b‖₁ for `tv` (Eq. 1), or else the cosine.

    >>> similarities(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0], [0.5, 0.5]]), "tv")
    tensor([[-0.5000, -0.0000]])
    """
    if similarity == "tv":
        return -0.5 * torch.cdist(first_NK, second_CK, p=1)
    return first_NK @ second_CK.T


class Representations(nn.Module, ABC):
    """A model that makes vectors of several sizes from the scores of a text."""

    similarity: Comparison

    @property
    @abstractmethod
    def width(self) -> int: ...

    @property
    @abstractmethod
    def counts(self) -> Sequence[int]: ...

    @property
    def floats(self) -> int:
        """Largest number of numbers in memory for a text while its vectors are computed."""
        return self.width

    @abstractmethod
    def scores(self, *read: Tensor) -> Tensor:
        """Compute scores [n, width] of texts from vectors [n, m], or tokens' vectors [n, t, m] and a mask [n, t]."""

    @abstractmethod
    def sizes(self, score_NW: Tensor) -> list[Tensor]: ...


class TreeLevels(Representations):
    """Levels of a tree as representations of a text: vectors of 2, 4, … 2^depth numbers."""

    def __init__(self, tree: NodeTree, similarity: Comparison) -> None:
        super().__init__()
        self.tree, self.similarity = tree, similarity
        self.offset_L: nn.Parameter | None = None
        if similarity == "cosine":
            self.offset_L = nn.Parameter(torch.zeros(2**tree.splits.depth))

    @torch.no_grad()
    def begin(self, removed_S: Tensor) -> None:
        """Set the start of cosine's learned offset, which restores the mean scores [splits] that `scale` removed."""
        if self.offset_L is not None:
            self.offset_L.copy_(products(removed_S[None])[-1][0].exp() * len(self.offset_L) - 1)

    @property
    def width(self) -> int:
        return len(level_of_splits(self.tree.splits.depth))

    @property
    def counts(self) -> Sequence[int]:
        return [2**level for level in range(1, self.tree.splits.depth + 1)]

    @property
    def floats(self) -> int:
        hidden = 1 if self.tree.propagation is None else self.tree.propagation.output_LH.shape[1]
        return int(2**self.tree.splits.depth * hidden)

    def scores(self, *read: Tensor) -> Tensor:
        return torch.as_tensor(self.tree.splits(*read))

    def sizes(self, score_NW: Tensor) -> list[Tensor]:
        return [self.represent(level_NK.exp()) for level_NK in self.tree.levels(score_NW)]

    def represent(self, probability_NK: Tensor) -> Tensor:
        offset_K = None if self.offset_L is None else self.offset_L.reshape(probability_NK.shape[1], -1).mean(dim=1)
        return represent(probability_NK, self.similarity, offset_K)


class RetreeverRouter(nn.Module):
    def __init__(
        self,
        dimension: int,
        depth: int,
        splits: Literal["linear", "mlp", "attention"],
        aggregation: Aggregation,
        propagation: Literal["product", "learned"],
        dropout: float,
        similarity: Comparison,
    ) -> None:
        super().__init__()
        self._config = {
            "dimension": dimension,
            "depth": depth,
            "splits": splits,
            "aggregation": aggregation,
            "propagation": propagation,
            "dropout": dropout,
            "similarity": similarity,
        }
        node_scores: Splits | AttentionSplits
        if splits == "attention":
            node_scores = AttentionSplits(dimension, depth, aggregation)
        else:
            node_scores = Splits(dimension, depth, Trunk(dimension) if splits == "mlp" else None)
        learned = LearnedPropagation(depth) if propagation == "learned" else None
        self.representations = TreeLevels(NodeTree(node_scores, learned, dropout), similarity)
        self.cells = Cells(2**depth, dimension)
        """Mean vector of each leaf's training documents. With these, every document chooses a second leaf."""

    def config(self) -> dict[str, Any]:
        return {"type": "retreever", **self._config}

    @property
    def splits(self) -> Splits | AttentionSplits:
        return self.representations.tree.splits

    @property
    def n_leaves(self) -> int:
        return int(2**self.splits.depth)


def token_reader(config: dict[str, Any], weights: Mapping[str, npt.NDArray[Any]]) -> Reader:
    """Make the function that computes splits' scores from tokens, with the saved weights of a `NodeTree`."""
    splits = AttentionSplits(int(config["dimension"]), int(config["depth"]), config["aggregation"])
    own = {name: torch.from_numpy(array.copy()) for name, array in weights.items() if name.startswith("splits.")}
    splits.load_state_dict({name.removeprefix("splits."): tensor for name, tensor in own.items()})
    splits.eval().requires_grad_(requires_grad=False)
    return lambda hidden_NTM, mask_NT: splits.to(hidden_NTM.device)(hidden_NTM, mask_NT)
