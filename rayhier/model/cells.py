"""Centroids that say which leaves a document lies in: the leaves whose centroids are nearest to its vector.

Every document is placed by itself. With very many leaves, it is compared only with the centroids in the nearest
groups of centroids.

Shapes: N texts, M embedding size, L leaves, G groups of leaves, P groups compared, C leaves of a document.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.model.encoded import Encoded

PROBES = 16
"""Number of nearest groups of leaves with whose leaves a document is compared."""
SCALE = 20.0
"""Factor of cosines before the softmax that makes them probabilities of leaves: p = softmax(20 cos)."""


class Cells(nn.Module):
    """The leaves' centroids, by which documents are placed, with prices that divert documents from crowded leaves."""

    centroid_LM: Tensor
    """Centroids of the leaves, unit vectors [leaves, m]; zero for a leaf without documents."""
    price_L: Tensor
    """Amounts [leaves] that are subtracted from a document's cosines to the centroids, higher for crowded leaves."""
    border: Tensor
    """Scalar: a document lies in a second leaf if its two greatest (cosine - price) differ by at most this much."""
    group_GM: Tensor
    """Centroids of groups of leaves [groups, m]. Without rows a document is compared with every leaf."""
    group_L: Tensor

    def __init__(self, leaves: int, dimension: int, groups: int = 0) -> None:
        super().__init__()
        self.leaves, self.groups = leaves, groups
        self._members: list[Tensor] = []
        self.register_buffer("centroid_LM", torch.zeros(leaves, dimension))
        self.register_buffer("price_L", torch.zeros(leaves))
        self.register_buffer("border", torch.tensor(2.0))
        self.register_buffer("group_GM", torch.zeros(groups, dimension))
        self.register_buffer("group_L", torch.zeros(leaves if groups else 0, dtype=torch.long))

    @property
    def compared(self) -> int:
        if not self.groups:
            return self.leaves
        largest = max(len(leaf_G) for leaf_G in self._leaves_of_groups())
        return min(self.leaves, self.groups + PROBES * largest)

    def place(self, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
        """Find the leaves [n, k] with the greatest (cosine - price), and log softmax(20 (cosine - price)) [n, k]."""
        unit_NM = F.normalize(encoded.vectors, dim=1)
        if self.groups <= PROBES:
            return self._among_all(unit_NM, count)
        leaf_NC, log_p_NC = self._near(unit_NM, min(count, self.leaves))
        # The nearest groups may hold too few leaves.
        if (few_N := log_p_NC[:, -1].isinf()).any():
            leaf_NC[few_N], log_p_NC[few_N] = self._among_all(unit_NM[few_N], count)
        return leaf_NC, log_p_NC

    def _among_all(self, unit_NM: Tensor, count: int) -> tuple[Tensor, Tensor]:
        near_NL = unit_NM @ self.centroid_LM.T - self.price_L
        log_p_NL = F.log_softmax(SCALE * near_NL, dim=1)
        log_p_NC, leaf_NC = log_p_NL.topk(min(count, self.leaves), dim=1)
        return leaf_NC, log_p_NC

    def _near(self, unit_NM: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Find the best leaves in the nearest groups, which estimate the softmax's sum over all leaves."""
        group_NP = (unit_NM @ self.group_GM.T).topk(PROBES, dim=1).indices
        near_NPC = unit_NM.new_full((*group_NP.shape, count), -torch.inf)
        leaf_NPC = torch.zeros(near_NPC.shape, dtype=torch.long, device=unit_NM.device)
        total_NP = near_NPC[:, :, 0].clone()
        for group, leaf_G in enumerate(self._leaves_of_groups()):
            row_A, slot_A = (group_NP == group).nonzero(as_tuple=True)
            if len(row_A):
                near_AG = unit_NM[row_A] @ self.centroid_LM[leaf_G].T - self.price_L[leaf_G]
                best_AC, place_AC = near_AG.topk(min(count, len(leaf_G)), dim=1)
                total_NP[row_A, slot_A] = torch.logsumexp(SCALE * near_AG, dim=1)
                near_NPC[row_A, slot_A, : best_AC.shape[1]] = best_AC
                leaf_NPC[row_A, slot_A, : best_AC.shape[1]] = leaf_G[place_AC]
        near_NC, place_NC = near_NPC.flatten(1).topk(count, dim=1)
        total_N1 = torch.logsumexp(total_NP, dim=1, keepdim=True)
        return leaf_NPC.flatten(1).gather(1, place_NC), SCALE * near_NC - total_N1

    def _leaves_of_groups(self) -> list[Tensor]:
        if not self._members:
            order_L = torch.argsort(self.group_L, stable=True)
            sizes = torch.bincount(self.group_L, minlength=self.groups).tolist()
            self._members = list(torch.split(order_L, sizes))
        return self._members
