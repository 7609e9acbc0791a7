"""`router: {type: ehi}`: the paper's tree, trained together with the encoder.

Kumar et al., "End-to-end Learning of Hierarchical Index for Efficient Dense Retrieval", section 3.3.
"""

import math
from typing import Literal

from rayhier.spec.router.tree import TreeSpec

DOCUMENTS_A_LEAF = 16.0


class EhiRouting(TreeSpec):
    """A tree whose levels share weights; documents and queries are routed in the same way."""

    type: Literal["ehi"]
    residual: Literal["relu", "none"] = "relu"
    """Input to the softmax of each level. `relu`: k = x + ReLU(U x), as in the paper. `none`: x itself."""
    warm_start: Literal["kmeans", "none"] = "kmeans"
    """First weights of the tree. `kmeans`: those of spherical k-means (ours). `none`: random, as in the paper."""

    def auto_leaves(self, documents: int) -> float:
        """Leaves where `branching` is auto: 16 documents a leaf up to N = 25,600 documents, then √N / 10 a leaf."""
        return documents / max(DOCUMENTS_A_LEAF, math.sqrt(documents) / 10)

    def multiply_adds(self, leaves: int, dimension: int) -> float:
        """Multiply-adds of routing one vector along one path of a tree with `leaves` leaves."""
        wide = round(leaves ** (1 / self.height)) * self.height
        return float(dimension * (dimension * self.height + wide))
