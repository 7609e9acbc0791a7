"""EHI's router: a tree of learned classifiers, whose beam search finds the leaves for a text.

Kumar et al., "End-to-end Learning of Hierarchical Index for Efficient Dense Retrieval", 3.3. At height h (1..H) the
input is x = [onehot(i_{h-1}); …; onehot(i_1); E(t)], then k = x + ReLU(U_h x) and p̂_h = softmax(W_h k); a child's
probability is p̂_h times its parent's. W_h and U_h serve all nodes of a level.

Shapes: N texts, M embedding size, B branching, H height, K beam, C children.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.model.cells import Cells
from rayhier.model.encoded import Encoded
from rayhier.model.tree import TreeRouter

WARM_SCALE = 20.0
U_STD = 1e-3


class EhiRouter(TreeRouter):
    """EHI's router: a tree with `branching` children a node and `height` levels, over unit vectors of size `dimension`.

    `residual` says whether each level has the layer U_h (`relu`) or not (`none`).
    """

    def __init__(self, dimension: int, branching: int, height: int, residual: Literal["relu", "none"]) -> None:
        super().__init__(dimension, branching, height)
        self.residual = residual
        widths = [dimension + branching * level for level in range(height)]
        self.W = nn.ModuleList(nn.Linear(width, branching, bias=False) for width in widths)
        self.U = nn.ModuleList(nn.Linear(width, width, bias=False) for width in widths if residual == "relu")
        for linear in self.U:
            # Weights of exactly zero would never change: ReLU'(0) = 0.
            nn.init.normal_(linear.weight, std=U_STD)  # type: ignore[arg-type]
        self.cells = Cells(branching**height, dimension)
        """Centroids of each leaf's training documents, without prices; every document gets a second leaf by them."""

    def config(self) -> dict[str, Any]:
        """Return the router's type and constructor arguments, by which `load_router` makes it again."""
        return {
            "type": "ehi",
            "dimension": self.dimension,
            "branching": self.branching,
            "height": self.height,
            "residual": self.residual,
        }

    @torch.no_grad()
    def warm_start(self, centroids_BM: Tensor) -> None:
        """Begin as k-means IVF: set W_1 to 20 x unit centroids [B, M], whose nearest is then the best child."""
        self.W[0].weight.copy_(WARM_SCALE * centroids_BM)  # type: ignore[operator]

    def path_embedding(self, x_NM: Tensor) -> Tensor:
        """Compute path embeddings T(t) = [p_1; …; p_H] [n, B·H] of texts' vectors [n, m].

        p_h are the probabilities of the B children at level h of the path that takes the most probable child at each
        level.
        """
        taken_N1 = x_NM.new_ones(len(x_NM), 1)
        input_ND = x_NM
        levels = []
        for level in range(self.height):
            p_NB = self._log_softmax(level, input_ND).exp() * taken_N1
            levels.append(p_NB)
            taken_N1, child_N1 = p_NB.max(dim=1, keepdim=True)
            input_ND = torch.cat([self._onehot(child_N1.squeeze(1)), input_ND], dim=1)
        return torch.cat(levels, dim=1)

    def given_path(self, x_NM: Tensor, path_NH: Tensor) -> list[Tensor]:
        """Compute log-probabilities of children along given paths: for each level a tensor [n, B].

        `path_NH` holds the child, 0 to B - 1, that each text's path takes at each level; each level's probabilities are
        those of the children of the node reached before it, and sum to 1.
        """
        input_ND = x_NM
        levels = []
        for level in range(self.height):
            levels.append(self._log_softmax(level, input_ND))
            input_ND = torch.cat([self._onehot(path_NH[:, level]), input_ND], dim=1)
        return levels

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """Find the most probable leaves of texts by beam search, which keeps the best `beam` nodes of each level.

        Returns leaf numbers [n, k] (the path as digits to base B, the root's child first), most probable first, and
        log-probabilities [n, k], k = min(beam, B^H).
        """
        x_NM = encoded.vectors
        leaf_NK = torch.zeros(len(x_NM), 1, dtype=torch.long, device=x_NM.device)
        logp_NK = x_NM.new_zeros(len(x_NM), 1)
        input_NKD = x_NM.unsqueeze(1)
        for level in range(self.height):
            children_NC = (logp_NK.unsqueeze(2) + self._log_softmax(level, input_NKD)).flatten(1)
            logp_NK, flat_NK = children_NC.topk(min(beam, children_NC.shape[1]), dim=1)
            parent_NK, child_NK = flat_NK // self.branching, flat_NK % self.branching
            leaf_NK = leaf_NK.gather(1, parent_NK) * self.branching + child_NK
            if level + 1 < self.height:
                width = input_NKD.shape[2]
                above_NKD = input_NKD.gather(1, parent_NK.unsqueeze(2).expand(-1, -1, width))
                input_NKD = torch.cat([self._onehot(child_NK), above_NKD], dim=2)
        return leaf_NK, logp_NK

    def place(self, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
        """Route documents like queries: returns their most probable leaves [n, k], and log-probabilities [n, k]."""
        return self.route(encoded, count)

    def multiply_adds(self, beam: int) -> int:
        """Count the multiply-adds of routing one text: U_h and W_h at every node that the beam expands."""
        total = 0
        for level in range(self.height):
            width = self.dimension + self.branching * level
            nodes = min(beam, self.branching**level)
            total += nodes * width * (self.branching + (width if self.residual == "relu" else 0))
        return total

    def _log_softmax(self, level: int, x: Tensor) -> Tensor:
        k = x + F.relu(self.U[level](x)) if self.residual == "relu" else x
        return F.log_softmax(self.W[level](k), dim=-1)

    def _onehot(self, child: Tensor) -> Tensor:
        return F.one_hot(child, self.branching).to(self.W[0].weight.dtype)  # type: ignore[arg-type]
