"""A flat router that compares queries with codes of its leaves first (ours).

A query is compared with codes of every leaf's weights, by the scan that also compares rows. The best leaves are then
scored in full. So the time of a query depends more on the leaves that it visits than on all leaves.

Shapes: N queries, L leaves, M embedding size, K beam, S leaves scored in full.
"""

import numpy as np
import torch
from torch import Tensor

from rayhier.arrays import Floats, Ints
from rayhier.model.cells import Cells
from rayhier.model.encoded import Encoded
from rayhier.model.learned_ivf import LearnedIvfRouter
from rayhier.model.revise import in_use
from rayhier.model.router import Router, route_all
from rayhier.search.native import scanned_rows, threads_for
from rayhier.search.native.reference import CodedFile, codes_of

FEWEST = 128
"""Fewest leaves that are coded: fewer are compared in full at once."""
CODED = 16
"""Dimensions of codes that are compared in the time of one multiply-add."""
MORE, FEWEST_MORE = 0.25, 16
"""Leaves that are scored in full beyond those that a query visits: a share of these, and a number. Then queries find as
many of their true results as with the full comparison (docs/LOG.md)."""


class CodedRouter:
    """A learned IVF router whose queries find their leaves by codes."""

    def __init__(self, router: LearnedIvfRouter) -> None:
        self.router = router
        weight_LM, bias_L = (tensor.detach().cpu().numpy().astype(np.float32) for tensor in (router.W, router.b))
        leaves_L = np.flatnonzero(np.isfinite(bias_L))  # others were merged
        self._leaves = None if len(leaves_L) == router.n_leaves else leaves_L
        weight_LM, bias_L = np.ascontiguousarray(weight_LM[leaves_L]), bias_L[leaves_L]
        self._V, self._U = (tensor.detach().cpu().numpy() for tensor in (router.V, router.U))
        one, size = np.zeros(1, np.int64), np.array([len(leaves_L)])
        file = CodedFile(weight_LM.astype(np.float16), *codes_of(weight_LM), bias_L, one, size, None)
        self._rows = scanned_rows(router.dimension, 1, [file])
        self._pays = dict[int, bool]()

    @property
    def n_leaves(self) -> int:
        return self.router.n_leaves

    @property
    def levels(self) -> int:
        return self.router.levels

    @property
    def reader(self) -> None:
        """None: the router reads vectors, not tokens."""
        return self.router.reader

    @property
    def device(self) -> torch.device:
        return self.router.device

    @property
    def cells(self) -> Cells:
        return self.router.cells

    def place(self, encoded: Encoded, count: int) -> tuple[Tensor, Tensor]:
        """Place documents as the router does: returns their best leaves [n, k], and log-probabilities [n, k]."""
        return self.router.place(encoded, count)

    def route(self, encoded: Encoded, beam: int) -> tuple[Tensor, Tensor]:
        """Choose leaves [n, k] for queries, densest first, with log-probabilities [n, k]. k is min(beam, leaves)."""
        leaf_NK = torch.from_numpy(self.route_vectors(encoded.numpy, beam)).to(self.device)
        return leaf_NK, self.router.log_probs(encoded.vectors.to(self.device).float()).gather(1, leaf_NK)

    def route_vectors(self, query_NM: Floats, beam: int) -> Ints:
        """Choose leaves for vectors [n, m] as `route` does."""
        if self._codes_pay(beam):
            return self.by_codes(query_NM, beam)
        return route_all(self.router, Encoded(query_NM), beam)[0].numpy()

    def by_codes(self, query_NM: Floats, beam: int) -> Ints:
        """Choose leaves for vectors [n, m] by codes, whether or not they pay; `beam` is at most half of the leaves."""
        query_NM = np.asarray(query_NM, np.float32)
        bent_NM = np.ascontiguousarray(query_NM + self._added(query_NM) if len(self._V) else query_NM)
        leaf_NK: Ints = self._rows.scan(bent_NM, None, beam, _listed(beam), None, threads_for(len(bent_NM)))[0]
        if (leaf_NK[:, -1:] < 0).any():  # many leaves were merged
            return route_all(self.router, Encoded(query_NM), beam)[0].numpy()
        return leaf_NK if self._leaves is None else self._leaves[leaf_NK]

    def _added(self, query_NM: Floats) -> Floats:
        """Return what the router adds to vectors [n, m]."""
        return np.asarray(np.maximum(query_NM @ self._V.T, 0) @ self._U.T)

    def multiply_adds(self, beam: int) -> int:
        """Count the multiply-adds of routing one query: codes by the time that they take, and the leaves in full."""
        return self._coded(beam) if self._codes_pay(beam) else self.router.multiply_adds(beam)

    def _codes_pay(self, beam: int) -> bool:
        pays = self._pays.get(beam)
        if pays is None:
            pays = _listed(beam) <= self.n_leaves and self._coded(beam) < self.router.multiply_adds(beam)
            self._pays[beam] = pays
        return pays

    def _coded(self, beam: int) -> int:
        m = self.router.dimension
        return 2 * self.router.rank * m + self.n_leaves * m // CODED + _listed(beam) * m


def _listed(beam: int) -> int:
    return beam + round(MORE * beam) + FEWEST_MORE


def first_pass_before(router: Router) -> Router:
    """Put codes before a learned IVF with at least 128 leaves in use. Codes do not pay before other routers."""
    if isinstance(router, LearnedIvfRouter) and int(in_use(router).sum()) >= FEWEST:
        return CodedRouter(router)
    return router
