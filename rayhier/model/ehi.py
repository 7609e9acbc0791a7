"""EHI's router (Kumar et al., "End-to-end Learning of Hierarchical Index for Efficient Dense Retrieval", 3.3).

At height h (1..H) the input is x = [onehot(i_{h-1}); …; onehot(i_1); E(t)], then k = x + ReLU(U_h x) and
p̂_h = softmax(W_h k); a child's probability is p̂_h times its parent's. W_h and U_h serve all nodes of a level.

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
    """A tree of B^H leaves over unit vectors of size M."""

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
        """Means of each leaf's training documents; no prices, and a border that gives every document a second leaf."""

    def config(self) -> dict[str, Any]:
        """Settings that rebuild this router before its weights are loaded."""
        return {
            "type": "ehi",
            "dimension": self.dimension,
            "branching": self.branching,
            "height": self.height,
            "residual": self.residual,
        }

    @torch.no_grad()
    def warm_start(self, centroids_BM: Tensor) -> None:
        """Begin as IVF: W_1 = 20 x unit centroids [B, M], so that the best child is the nearest centroid."""
        self.W[0].weight.copy_(WARM_SCALE * centroids_BM)  # type: ignore[operator]

    def path_embedding(self, x_NM: Tensor) -> Tensor:
        """T(t) = [p_1; …; p_H], [N, B·H]: each level's distribution, along the argmax path only."""
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
        """Log-probabilities [N, B] of the children, at each level, of the nodes on given paths [N, H]."""
        input_ND = x_NM
        levels = []
        for level in range(self.height):
            levels.append(self._log_softmax(level, input_ND))
            input_ND = torch.cat([self._onehot(path_NH[:, level]), input_ND], dim=1)
        return levels

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """Beam search: the best `beam` children of every level's survivors.

        Returns leaf ids [N, K] (the path as digits to base B, the root's child first), best first, and
        log-probabilities [N, K], K = min(beam, B^H).
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
        """The best `count` leaves [N, C] of a document, routed like a query, and log-probabilities [N, C]."""
        return self.route(encoded, count)

    def multiply_adds(self, beam: int) -> int:
        """Multiply-adds of routing one text: U_h and W_h at every node that the beam expands."""
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
