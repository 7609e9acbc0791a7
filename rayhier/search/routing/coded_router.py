"""A learned IVF whose queries are first compared with codes of all leaves (our addition).

The scan that compares rows also compares codes of leaves. The best leaves are then scored in full. So the time of a
query depends more on the leaves that it visits than on all leaves.

Shapes: N queries, L leaves, M embedding size, K beam.
"""

import numpy as np

from rayhier.arrays import Floats, Ints
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import LearnedIvf, OpenedRouter
from rayhier.search.native import scanned_rows, threads_for
from rayhier.search.native.reference import CodedFile, codes_of

FEWEST = 128
"""Fewest leaves in use for which codes are made. Fewer leaves are all compared in full."""
CODED = 16
"""Number of dimensions of codes that are compared in the time of one multiply-add."""
MORE, FEWEST_MORE = 0.25, 16
"""Leaves that are scored in full beyond the beam: a share of the beam, and a number. With these leaves, queries find
as many true results as with the full comparison (docs/results/LOG.md)."""


class CodedRouter(LearnedIvf):
    """A learned IVF router whose queries find their leaves by codes."""

    def __init__(self, router: LearnedIvf) -> None:
        super().__init__(router.config, router.weights)
        leaves_L = np.flatnonzero(self.in_use)
        self._leaves = None if len(leaves_L) == self.n_leaves else leaves_L
        weight_LM, bias_L = np.ascontiguousarray(self.W[leaves_L]), self.b[leaves_L]
        one, size = np.zeros(1, np.int64), np.array([len(leaves_L)])
        file = CodedFile(weight_LM.astype(np.float16), *codes_of(weight_LM), bias_L, one, size, None)
        self._rows = scanned_rows(self.dimension, 1, [file])

    def choose(self, encoded: Encoded, beam: int) -> Ints:
        """Choose the leaves [n, k] that queries visit, best first, by codes if this saves time."""
        return self.by_codes(encoded.numpy, beam) if self._codes_pay(beam) else super().choose(encoded, beam)

    def _route(self, encoded: Encoded, beam: int) -> tuple[Ints, Floats]:
        if not self._codes_pay(beam):
            return super()._route(encoded, beam)
        leaf_NK = self.by_codes(encoded.numpy, beam)
        return leaf_NK, np.take_along_axis(self.log_probs(encoded.numpy), leaf_NK, axis=1)

    def by_codes(self, query_NM: Floats, beam: int) -> Ints:
        """Choose leaves for vectors [n, m], always by codes. `beam` is at most half of the number of leaves."""
        bent_NM = np.ascontiguousarray(self.bend(query_NM), np.float32)
        leaf_NK: Ints = self._rows.scan(bent_NM, None, beam, _listed(beam), None, threads_for(len(bent_NM)))[0]
        if (leaf_NK[:, -1:] < 0).any():  # many leaves were merged
            return super().choose(Encoded(query_NM), beam)
        return leaf_NK if self._leaves is None else self._leaves[leaf_NK]

    def multiply_adds(self, beam: int) -> int:
        """Count the multiply-adds of routing one query. 16 dimensions of codes, by their time, count as one."""
        return self._coded(beam) if self._codes_pay(beam) else super().multiply_adds(beam)

    def _codes_pay(self, beam: int) -> bool:
        return _listed(beam) <= self.n_leaves and self._coded(beam) < super().multiply_adds(beam)

    def _coded(self, beam: int) -> int:
        return (2 * len(self.V) + _listed(beam)) * self.dimension + self.n_leaves * self.dimension // CODED


def _listed(beam: int) -> int:
    return beam + round(MORE * beam) + FEWEST_MORE


def first_pass_before(router: OpenedRouter) -> OpenedRouter:
    """Return a learned IVF with at least 128 leaves in use as a `CodedRouter`, and other routers unchanged."""
    if isinstance(router, LearnedIvf) and int(router.in_use.sum()) >= FEWEST:
        return CodedRouter(router)
    return router
