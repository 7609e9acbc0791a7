"""The learned IVF: k-means leaves, and queries taught which of them hold their answers (ours).

A query is bent, y = x + U ReLU(V x), and a leaf's density is exp(w·y + b): how likely one document in it is an answer.
Times the leaf's size it is the leaf's probability, which is what is taught; without, it is the order of visit, because
a search pays for documents, not for leaves. W begins at 20 x the centroids and U at 0: as k-means IVF.

Many small leaves visit fewer documents, and scoring them all would cost more than it saves. So a flat router screens
them first by a projection of W to a few dimensions, then scores the best in full. A taller one has weights at every
node and keeps the best of each level; its inner nodes only leave leaves out, and what is left is scored as if the
router were flat.

Documents are placed by centroids alone (cells.py).

Shapes: N texts, M embedding size, B branching, H height, L = B^H leaves, K beam, S screened, P projection, R rank,
C leaves of a document.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rayhier.model.cells import SCALE, Cells
from rayhier.model.encoded import Encoded

SHORTLIST = 4
"""Leaves scored in full for each one that is visited."""
SHARES = 100
"""Shares of the dev queries' answers at which it is noted how dense their leaves are."""
CALIBRATED = 1024
"""Pairs of a query and an answer whose leaves are scored together."""
WIDER = 2
"""Inner nodes kept at each level for each leaf that is visited."""


class LearnedIvfRouter(nn.Module):
    """A tree of B^H leaves over vectors of size M; queries and documents come to it in different ways."""

    log_size_L: Tensor
    screen_PM: Tensor
    screened_LP: Tensor
    reach_T: Tensor

    def __init__(
        self, dimension: int, branching: int, height: int, rank: int, screen: int = 0, groups: int = 0
    ) -> None:
        super().__init__()
        self.dimension, self.branching, self.height, self.rank = dimension, branching, height, rank
        self.screen = screen if height == 1 else 0
        sizes = [branching**level for level in range(1, height + 1)]
        self.W = nn.ParameterList(nn.Parameter(torch.zeros(size, dimension)) for size in sizes)
        self.b = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in sizes)
        self.V = nn.Parameter(torch.randn(rank, dimension) / dimension**0.5)
        self.U = nn.Parameter(torch.zeros(dimension, rank))
        self.cells = Cells(sizes[-1], dimension, groups)
        self.register_buffer("log_size_L", torch.zeros(sizes[-1]))
        self.register_buffer("screen_PM", torch.zeros(self.screen, dimension))
        self.register_buffer("screened_LP", torch.zeros(sizes[-1], self.screen))
        self.register_buffer("reach_T", torch.full((SHARES + 1,), torch.inf))

    @property
    def reads(self) -> Literal["vectors"]:
        """The text's vector alone."""
        return "vectors"

    @property
    def n_leaves(self) -> int:
        """B^H."""
        return int(self.branching**self.height)

    @property
    def levels(self) -> int:
        """H."""
        return self.height

    @property
    def device(self) -> torch.device:
        """Where its weights lie."""
        return self.U.device

    def config(self) -> dict[str, Any]:
        """What rebuilds this router before its weights are loaded."""
        shape = {"dimension": self.dimension, "branching": self.branching, "height": self.height}
        return {"type": "learned_ivf", **shape, "rank": self.rank, "screen": self.screen, "groups": self.cells.groups}

    @torch.no_grad()
    def begin(self, centroid_LM: Tensor, scale: float = SCALE) -> None:
        """Become k-means IVF: leaves are centroids, children of a node next to each other; inner nodes their means."""
        self.cells.centroid_LM.copy_(centroid_LM)
        level_KM = centroid_LM
        for W, b in zip(reversed(self.W), reversed(self.b), strict=True):
            W.copy_(scale * level_KM)
            b.zero_()
            level_KM = F.normalize(level_KM.view(-1, self.branching, self.dimension).mean(dim=1), dim=1)
        self.finish()

    @torch.no_grad()
    def finish(self) -> None:
        """After teaching: the projection that keeps most of the leaves' weights (their principal components)."""
        if self.screen:
            W = self.W[-1].double()
            directions_MM = torch.linalg.eigh(W.T @ W).eigenvectors.flip(1)
            self.screen_PM.copy_(directions_MM[:, : self.screen].T)
            self.screened_LP.copy_(self.W[-1] @ self.screen_PM.T)

    @property
    def calibrated(self) -> bool:
        """Whether it knows how dense the leaves of dev queries' answers are."""
        return bool(self.reach_T.isfinite().all())

    @torch.no_grad()
    def calibrate(self, x_NM: Tensor, row_P: Tensor, leaf_PR: Tensor) -> None:
        """Note the log-density, log p / n, of the leaf by which each answer is reached, least dense first.

        Pairs of a query, a row of `x_NM`, and an answer, in leaves [p, r].
        """
        if len(row_P):
            density_P = torch.empty(len(row_P))
            for part_P in torch.split(torch.arange(len(row_P)), CALIBRATED):
                log_p_PL = self.log_probs(x_NM[row_P[part_P]].to(self.device))[-1] - self.log_size_L
                density_P[part_P] = log_p_PL.gather(1, leaf_PR[part_P].to(self.device)).max(dim=1).values.cpu()
            shares = torch.linspace(0, 1, SHARES + 1)
            self.reach_T.copy_(torch.quantile(density_P, shares))

    def bend(self, x_NM: Tensor) -> Tensor:
        """What a query is compared by: x + U ReLU(V x)."""
        return x_NM + F.relu(x_NM @ self.V.T) @ self.U.T

    def log_probs(self, x_NM: Tensor) -> list[Tensor]:
        """Log-probabilities [N, B^h], of every level, that a node holds the answer to a query; leaves last."""
        y_NM = self.bend(x_NM)
        logits = [y_NM @ W.T + b for W, b in zip(self.W, self.b, strict=True)]
        logits[-1] = logits[-1] + self.log_size_L
        return [F.log_softmax(logits_NC, dim=1) for logits_NC in logits]

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """The leaves [N, K] a query visits, densest first, and their log-probabilities [N, K], K = min(beam, L).

        Behind a screen, or below nodes that were left out, the sum over all leaves is an estimate from those scored.
        """
        y_NM, beam = self.bend(encoded.vectors), min(beam, self.n_leaves)
        return self._tree(y_NM, beam) if self.height > 1 else self._flat(y_NM, beam)

    def place(self, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
        """The `count` leaves [N, C] nearest to a document after price, best first, and log softmax(20 cos) [N, C]."""
        return self.cells.place(encoded, count)

    def multiply_adds(self, beam: int) -> int:
        """Of one query: the bend, then the screen and what passes it, or every node expanded."""
        bend = 2 * self.rank * self.dimension
        if self.height == 1:
            return bend + self._screened(min(beam, self.n_leaves))
        kept = [1, *(min(WIDER * beam, int(self.branching**level)) for level in range(1, self.height))]
        return bend + sum(kept) * self.branching * self.dimension

    def _screened(self, beam: int) -> int:
        if not self._screens(beam):
            return self.n_leaves * self.dimension
        projection = self.screen * self.dimension
        return projection + self.n_leaves * self.screen + SHORTLIST * beam * self.dimension

    def _screens(self, beam: int) -> bool:
        """Whether the first pass pays."""
        full = self.n_leaves * self.dimension
        two = self.screen * (self.dimension + self.n_leaves) + SHORTLIST * beam * self.dimension
        return self.screen > 0 and two < full

    def _flat(self, y_NM: Tensor, beam: int) -> tuple[Tensor, Tensor]:
        W, b = self.W[0], self.b[0]
        if self._screens(beam):
            all_NL = (y_NM @ self.screen_PM.T) @ self.screened_LP.T + b
            leaf_NS = all_NL.topk(SHORTLIST * beam, dim=1).indices
            score_NS = _given(y_NM, leaf_NS, W, b)
            all_NL = all_NL.scatter(1, leaf_NS, score_NS)  # what is known better counts in the sum
            score_NK, place_NK = score_NS.topk(beam, dim=1)
            leaf_NK = leaf_NS.gather(1, place_NK)
        else:
            all_NL = y_NM @ W.T + b
            score_NK, leaf_NK = all_NL.topk(beam, dim=1)
        total_N1 = torch.logsumexp(all_NL + self.log_size_L, dim=1, keepdim=True)
        return leaf_NK, score_NK + self.log_size_L[leaf_NK] - total_N1

    def _tree(self, y_NM: Tensor, beam: int) -> tuple[Tensor, Tensor]:
        node_NK = torch.zeros(len(y_NM), 1, dtype=torch.long, device=y_NM.device)
        children_B = torch.arange(self.branching, device=y_NM.device)
        for level, (W, b) in enumerate(zip(self.W, self.b, strict=True), start=1):
            child_NC = (node_NK.unsqueeze(2) * self.branching + children_B).flatten(1)
            score_NC = _given(y_NM, child_NC, W, b)
            if level < self.height:
                node_NK = child_NC.gather(1, score_NC.topk(min(WIDER * beam, score_NC.shape[1]), dim=1).indices)
        score_NK, place_NK = score_NC.topk(beam, dim=1)
        leaf_NK = child_NC.gather(1, place_NK)
        total_N1 = torch.logsumexp(score_NC + self.log_size_L[child_NC], dim=1, keepdim=True)
        return leaf_NK, score_NK + self.log_size_L[leaf_NK] - total_N1


def _given(y_NM: Tensor, node_NS: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """w·y + b [N, S] of given nodes of a level; of many texts one product with all nodes is faster than gathering."""
    if node_NS.numel() >= len(W):
        return (y_NM @ W.T + b).gather(1, node_NS)
    # Of one query twice as fast as W[node_NS] and an einsum.
    return torch.bmm(F.embedding(node_NS, W), y_NM.unsqueeze(2)).squeeze(2) + b[node_NS]


def reach_loss(log_p_NL: Tensor, row_P: Tensor, leaf_PR: Tensor, weight_P: Tensor) -> Tensor:
    """Sum of -w log(p of any leaf that holds the answer): a document is reached by either of its leaves.

    Pairs of a query, a row of `log_p_NL`, and an answer, in leaves [p, r]; a leaf twice counts once.

    >>> log_p = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> row, leaves = torch.tensor([0, 0]), torch.tensor([[0, 1], [2, 2]])
    >>> reach_loss(log_p, row, leaves, torch.ones(2))  # -log 0.8 - log 0.2
    tensor(1.8326)
    """
    log_p_PR = log_p_NL[row_P.unsqueeze(1), leaf_PR]
    again_PR = (leaf_PR.unsqueeze(2) == leaf_PR.unsqueeze(1)).tril(-1).any(dim=2)
    return -(torch.logsumexp(log_p_PR.masked_fill(again_PR, -torch.inf), dim=1) * weight_P).sum()
