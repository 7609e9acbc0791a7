"""Compute HCE's loss: at each level of a tree, a query chooses its answer's node among the node's siblings.

"Hierarchical Corpus Encoder: Fusing Generative Retrieval and Dense Indices", Eq. 5-7.

Shapes: N queries, K nodes of a level, S most siblings of a node, U nodes among all queries' siblings, M embedding size,
T levels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Hierarchy(nn.Module):
    """Trainable centroids of the nodes in the upper levels of a tree of documents, and the siblings of each node."""

    def __init__(self, counts: Sequence[int], dimension: int) -> None:
        super().__init__()
        self.centroids = nn.ParameterList(nn.Parameter(torch.zeros(count, dimension)) for count in counts)
        self._siblings: list[Tensor] = []

    def __len__(self) -> int:
        return len(self.centroids)

    @property
    def device(self) -> torch.device:
        return self.centroids[0].device if len(self) else torch.device("cpu")

    def arrange(self, parents: Sequence[Tensor], alive: Sequence[Tensor]) -> None:
        """Set which nodes are siblings, by parents [nodes] and `alive` [nodes] (True with documents) of each level."""
        self._siblings = [siblings(*level).to(self.device) for level in zip(parents, alive, strict=True)]
        self._parents = [parent_K.to(self.device) for parent_K in parents]

    def loss(self, query_NM: Tensor, node_NT: Tensor, temperature: float) -> Tensor:
        """Sum, over queries and levels, the cross-entropy of choosing the answer's node among its siblings (Eq. 5).

        `node_NT` [queries, levels] are the nodes above each query's answer, from the top.
        """
        total = query_NM.new_zeros(())
        for level, centroid_KM in enumerate(self.centroids):
            node_N = node_NT[:, level]
            sibling_NS = self._siblings[level][self._parents[level][node_N]]
            near_U, place_NS = torch.unique(sibling_NS.clamp(min=0), return_inverse=True)
            score_NU = query_NM @ F.normalize(centroid_KM[near_U], dim=1).T
            score_NS = score_NU.gather(1, place_NS).masked_fill(sibling_NS < 0, -torch.inf) / temperature
            target_N = (sibling_NS == node_N.unsqueeze(1)).int().argmax(dim=1)
            total = total + F.cross_entropy(score_NS, target_N, reduction="sum")
        return total


def siblings(parent_K: Tensor, alive_K: Tensor) -> Tensor:
    """List each parent node's children that hold documents: [parents, most children], with -1 after the last child.

    >>> siblings(torch.tensor([0, 1, 0, 0]), torch.tensor([True, True, False, True]))
    tensor([[ 0,  3],
            [ 1, -1]])
    """
    child_A = alive_K.nonzero()[:, 0]
    child_A = child_A[torch.argsort(parent_K[child_A], stable=True)]
    parent_A = parent_K[child_A]
    count_P = torch.bincount(parent_A, minlength=int(parent_K.max()) + 1)
    place_A = torch.arange(len(child_A)) - (count_P.cumsum(0) - count_P)[parent_A]
    table_PS = torch.full((len(count_P), int(count_P.max())), -1, dtype=torch.long)
    table_PS[parent_A, place_A] = child_A
    return table_PS
