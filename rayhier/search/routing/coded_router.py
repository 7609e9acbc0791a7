"""A flat router that compares queries with codes of its leaves first (ours).

A query is compared with four-bit codes of every leaf's weights and bias (codebook.py), and the best leaves are then
scored in full, both in one call of faiss. So a leaf costs 1/64 of a product of its weights, and the time of one query
grows with the leaves that it visits more than with those that there are.

Shapes: N queries, L leaves, M embedding size, P the size of codes, K beam, S leaves scored in full.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Floats, Ints
from rayhier.cluster.library import faiss
from rayhier.model.cells import Cells
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.revise import in_use
from rayhier.model.router import WEIGHTS, Router, route_all
from rayhier.search.segment.codebook import CENTROIDS, FORMAT, Codebook
from rayhier.storage import cache, files

FEWEST = 39 * CENTROIDS
"""Fewest leaves that are coded, 39 for each centroid as faiss asks: fewer are compared in full at once."""
PIECE = 2
"""Numbers of a leaf's weights that one code stands for."""
ADDED = 32
"""Codes whose table entries are added in the time of one multiply-add."""
SHORTLIST = 2
"""Number of leaves that are scored in full after the first pass, for each leaf that a query visits. With this piece,
.994 to .997 of the leaves are those of the full comparison (docs/LOG.md)."""


class CodedRouter:
    """A learned IVF router whose queries find their leaves by codes."""

    def __init__(self, router: LearnedIvfRouter, codebook: Codebook | None = None) -> None:
        """Code the leaves' weights, from which their mean is taken: it adds the same number to a query's every score.

        The bias is one more coordinate, by which every query has 1. `codebook` is that of the router before leaves were
        split, None: it is computed. Equal weights and codebooks give equal codes.
        """
        self.router = router
        leaves_L, full_LM, coded_LM = _live(router)  # codes cannot tell how bad a merged leaf is
        self._leaves = None if len(leaves_L) == router.n_leaves else leaves_L
        self._V, self._U = router.V.detach().cpu(), router.U.detach().cpu()
        self._log_size_L = router.log_size_L.cpu().numpy()[leaves_L]
        self._codebook = codebook or Codebook.train(coded_LM, PIECE)
        codes, full = self._codebook.flat(coded_LM), faiss.IndexFlatIP(self._codebook.width)
        full.add(self._codebook.padded(full_LM))
        self._index = faiss.IndexRefine(codes, full)
        self._held = codes, full  # faiss keeps no reference

    @property
    def n_leaves(self) -> int:
        """Number of leaves of the router's tree."""
        return self.router.n_leaves

    @property
    def levels(self) -> int:
        """Number of levels of the router's tree."""
        return self.router.levels

    @property
    def reader(self) -> None:
        """None: the router reads vectors, not tokens."""
        return self.router.reader

    @property
    def device(self) -> torch.device:
        """Device of the router's weights."""
        return self.router.device

    @property
    def cells(self) -> Cells:
        """Centroids by which the router places documents."""
        return self.router.cells

    def place(self, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
        """Place documents as the router does: returns their best leaves [n, k], and log-probabilities [n, k]."""
        return self.router.place(encoded, count)

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """Choose leaves [n, k] for queries, densest first, with log-probabilities [n, k]; k = min(beam, leaves).

        The probabilities' sum is taken over the leaves that are scored in full.
        """
        leaf_NK, log_prob_NK = self.route_vectors(encoded.numpy, beam)
        return torch.from_numpy(leaf_NK).to(self.device), torch.from_numpy(log_prob_NK).to(self.device)

    def route_vectors(self, query_NM: Floats, beam: int) -> tuple[Ints, Floats]:
        """Choose leaves for vectors [n, m] as `route` does."""
        return self.by_codes(query_NM, beam) if self._codes_pay(beam) else self._in_full(query_NM, beam)

    def by_codes(self, query_NM: Floats, beam: int) -> tuple[Ints, Floats]:
        """Choose leaves for vectors [n, m] by codes, whether or not they pay; `beam` is at most half of the leaves."""
        coded_NP, m = np.zeros((len(query_NM), self._codebook.width), np.float32), query_NM.shape[1]
        coded_NP[:, :m], coded_NP[:, m] = query_NM, 1
        if len(self._V):
            coded_NP[:, :m] += self._added(query_NM)
        score_NS, leaf_NS = self._index.search(coded_NP, SHORTLIST * beam)
        if (leaf_NS[:, beam - 1] < 0).any():  # faiss leaves out some of the worst codes
            return self._in_full(query_NM, beam)
        most_N1, mass_NS = score_NS[:, :1], score_NS + self._log_size_L.take(leaf_NS, mode="clip")
        if (leaf_NS[:, -1] < 0).any():
            mass_NS[leaf_NS < 0] = -np.inf
        total_N1 = most_N1 + np.log(np.exp(mass_NS - most_N1).sum(axis=1, keepdims=True))
        leaf_NK = leaf_NS[:, :beam]
        return leaf_NK if self._leaves is None else self._leaves[leaf_NK], mass_NS[:, :beam] - total_N1

    def _added(self, query_NM: Floats) -> Floats:
        """Return what the router adds to vectors [n, m]; by torch, since numpy's threads would wait at faiss's cost."""
        if len(query_NM) == 1:
            return np.asarray(np.maximum(query_NM @ self._V.numpy().T, 0) @ self._U.numpy().T)
        query = torch.tensor(np.ascontiguousarray(query_NM, dtype=np.float32))
        return torch.relu(query @ self._V.T).matmul(self._U.T).numpy()

    def multiply_adds(self, beam: int) -> int:
        """Count the multiply-adds of routing one query: codes by the time that they take, and the leaves in full."""
        return self._coded(beam) if self._codes_pay(beam) else self.router.multiply_adds(beam)

    def _codes_pay(self, beam: int) -> bool:
        return SHORTLIST * beam <= self.n_leaves and self._coded(beam) < self.router.multiply_adds(beam)

    def _coded(self, beam: int) -> int:
        m, pieces = self.router.dimension, self._codebook.pieces
        codes = CENTROIDS * self._codebook.width + self.n_leaves * pieces // ADDED
        return 2 * self.router.rank * m + codes + SHORTLIST * beam * m

    def _in_full(self, query_NM: Floats, beam: int) -> tuple[Ints, Floats]:
        leaf_NK, log_prob_NK = route_all(self.router, Encoded.of(query_NM), beam)
        return leaf_NK.numpy(), log_prob_NK.numpy()


def _live(router: LearnedIvfRouter) -> tuple[Ints, Floats, Floats]:
    """Return the leaves [l] in use, their weights with biases [l, m + 1], and these without their means."""
    weight_LM, bias_L = (tensor.detach().cpu().numpy() for tensor in (router.W, router.b))
    leaves_L = np.flatnonzero(np.isfinite(bias_L))
    weight_LM, bias_L = weight_LM[leaves_L], bias_L[leaves_L]
    coded_LM = np.column_stack([weight_LM - weight_LM.mean(axis=0), bias_L - bias_L.mean()])
    return leaves_L, np.column_stack([weight_LM, bias_L]), coded_LM


def codebook_of(folder: Path, router: Router) -> Codebook | None:
    """Return the codebook of a router in a folder, computed once on this machine. None if codes do not pay.

    Versions whose leaves were split have it too, so that these open in no time.
    """
    if not (isinstance(router, LearnedIvfRouter) and _pays(router)):
        return None

    def fill(place: Path) -> None:
        Codebook.train(_live(router)[2], PIECE).save(place)

    made_of = f"codebook of leaves {FORMAT} {PIECE} {files.digest(folder / WEIGHTS)}"
    return Codebook.load(cache.get_or_build("codebooks", made_of, fill).folder, router.dimension + 1)


def first_pass_before(router: Router, codebook: Codebook | None = None) -> Router:
    """Put codes before a router where they pay: before a learned IVF with at least 624 leaves in use.

    `codebook` is that of the router before leaves were split, None: it is computed.
    """
    return CodedRouter(router, codebook) if isinstance(router, LearnedIvfRouter) and _pays(router) else router


def _pays(router: LearnedIvfRouter) -> bool:
    return int(in_use(router).sum()) >= FEWEST
