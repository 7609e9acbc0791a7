"""`router: {type: ehi}`: a tree that is trained together with the encoder, as in the paper of EHI.

Kumar et al., "End-to-end Learning of Hierarchical Index for Efficient Dense Retrieval", section 3.3.
"""

import math
from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.router.tree import TreeSpec

DOCUMENTS_A_LEAF = 16.0


class EhiRouting(TreeSpec):
    """EHI's router: a tree whose levels share weights. Documents and queries are routed in the same way."""

    type: Literal["ehi"]
    height: Annotated[int, Field(ge=1, le=8)] = 1
    """Number of levels below the root, H. The tree has B^H leaves."""
    warm_start: Literal["kmeans", "none"] = "kmeans"
    """First tree weights. `kmeans`: centroids of spherical k-means (our addition). `none`: random, as in the paper."""

    @property
    def levels(self) -> int:
        return self.height

    def auto_leaves(self, documents: int) -> float:
        """Return N / max(16, √N / 10) leaves for N documents, so that a leaf has at least 16 documents on average."""
        return documents / max(DOCUMENTS_A_LEAF, math.sqrt(documents) / 10)
