"""`router: {type: ehi}`: the paper's tree, trained together with the encoder.

Kumar et al., "End-to-end Learning of Hierarchical Index for Efficient Dense Retrieval", section 3.3.
"""

import math
from typing import Literal

from rayhier.spec.router.tree import Reads, TreeSpec

DOCUMENTS_A_LEAF = 16.0


class EhiRouting(TreeSpec):
    """A tree whose levels share weights; documents and queries are routed in the same way."""

    type: Literal["ehi"]
    residual: Literal["relu", "none"] = "relu"
    """Input to the softmax of each level. `relu`: k = x + ReLU(U x), as in the paper. `none`: x itself."""
    warm_start: Literal["kmeans", "none"] = "kmeans"
    """First weights of the tree. `kmeans`: those of spherical k-means (ours). `none`: random, as in the paper."""

    @property
    def spills(self) -> bool:
        """Whether only documents near a border get a second leaf: no, with two leaves a document all documents do."""
        return False

    @property
    def calibrates(self) -> bool:
        """Whether the router learns from dev queries how probable an answer is: no."""
        return False

    @property
    def reads(self) -> Reads:
        """Part of an encoded text that routing needs."""
        return "vectors"

    def phases(self, *, supervised: bool) -> dict[str, int]:  # noqa: ARG002  it always learns together with the encoder
        """Phases in which only the router trains, name -> epochs: none, it trains together with the encoder."""
        return {}

    def lessons(self, queries: int, documents: int) -> int:  # noqa: ARG002  always none
        """Number of texts that teach the router after the encoder has trained: none."""
        return 0

    def auto_leaves(self, documents: int) -> float:
        """Leaves where `branching` is auto: 16 documents a leaf up to N = 25,600 documents, then √N / 10 a leaf."""
        return documents / max(DOCUMENTS_A_LEAF, math.sqrt(documents) / 10)

    def multiply_adds(self, leaves: int, dimension: int) -> float:
        """Multiply-adds of routing one vector along one path of a tree with `leaves` leaves."""
        wide = round(leaves ** (1 / self.height)) * self.height
        return float(dimension * (dimension * self.height + wide))
