"""`router: {type: ehi}`: the paper's tree, trained together with the encoder.

Kumar et al., "End-to-end Learning of Hierarchical Index for Efficient Dense Retrieval", section 3.3.
"""

import math
from typing import Literal

from rayhier.spec.router.tree import Tree

DOCUMENTS_A_LEAF = 16.0


class Ehi(Tree):
    """A tree whose levels share weights; documents and queries are routed one way."""

    type: Literal["ehi"]
    residual: Literal["relu", "none"] = "relu"
    """`relu`: k = x + ReLU(U x) before the softmax of each level, as in the paper. `none`: x itself."""
    warm_start: Literal["kmeans", "none"] = "kmeans"
    """`kmeans`: start as spherical k-means (ours). `none`: random, as in the paper."""

    @property
    def spills(self) -> bool:
        """Whether it finds a border: no, with two leaves a document every document lies in two."""
        return False

    @property
    def calibrates(self) -> bool:
        """Whether it learns how probable an answer is: no."""
        return False

    @property
    def reads(self) -> Literal["vectors", "tokens"]:
        """What routing needs of a text."""
        return "vectors"

    def phases(self, *, supervised: bool) -> dict[str, int]:  # noqa: ARG002  whatever it learns from, it learns jointly
        """Epochs of each phase of training that is its own: none, it trains together with the encoder."""
        return {}

    def lessons(self, queries: int, documents: int) -> int:  # noqa: ARG002  whatever there is, it learns jointly
        """Queries and documents that teach it after the encoder: none."""
        return 0

    def auto_leaves(self, documents: int) -> float:
        """Leaves where `branching` is auto: 16 documents a leaf up to 25,600 documents, then √N / 10."""
        return documents / max(DOCUMENTS_A_LEAF, math.sqrt(documents) / 10)

    def multiply_adds(self, documents: int, dimension: int) -> float:
        """Multiply-adds of one vector through a router over so many documents, one path followed."""
        wide = self.children(documents) * self.height
        return float(dimension * (dimension * self.height + wide))
