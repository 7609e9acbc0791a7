"""`router:` the learned tree that sends a text to leaves."""

from typing import Annotated, Literal

from pydantic import Field

from rayhier.spec.section import Section


class EhiSpec(Section):
    """EHI (Kumar et al., "End-to-end Learning of Hierarchical Index for Efficient Dense Retrieval")."""

    type: Literal["ehi"]
    branching: Annotated[int, Field(ge=2, le=1_000_000)] | Literal["auto"] = "auto"
    """Children of every node, B. `auto` follows from the number of documents."""
    height: Annotated[int, Field(ge=1, le=8)] = 1
    """Levels below the root, H. Leaves are B^H."""
    residual: Literal["relu", "none"] = "relu"
    """`relu`: k = x + ReLU(U x) before each level's softmax. `none`: k = x, and no U to pay for."""
    warm_start: Literal["kmeans", "none"] = "kmeans"
    """`kmeans`: start as spherical k-means, hierarchical where the tree is taller. `none`: random, as in the paper."""

    def leaves(self, documents: int) -> int:
        """Leaves of the tree over so many documents: B^H.

        `auto` aims at 16 documents a leaf up to 25,600 documents, then at √N / 10.
        """
        if self.branching == "auto":
            per_leaf = max(16.0, documents**0.5 / 10)
            branching = max(2, round((documents / per_leaf) ** (1 / self.height)))
        else:
            branching = self.branching
        return int(branching**self.height)


RouterSpec = EhiSpec
