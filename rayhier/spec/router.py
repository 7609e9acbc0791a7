"""`router:` the learned tree that sends a text to leaves."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from rayhier.spec.section import Section

FEWEST_SCREENED = 256
SCREEN, RANK = 48, 16


class EhiSpec(Section):
    """Encoder and tree learned together; `training` says how."""

    type: Literal["ehi"]
    training: Literal["taught", "joint"] = "taught"
    """`taught` (ours): the encoder by contrast, leaves by k-means of its vectors, then the router is taught which
    leaves hold the answers. `joint`: EHI's three losses at once (Kumar et al., "End-to-end Learning of Hierarchical
    Index for Efficient Dense Retrieval")."""
    branching: Annotated[int, Field(ge=2, le=1_000_000)] | Literal["auto"] = "auto"
    """Children of every node, B. `auto` follows from the number of documents."""
    height: Annotated[int, Field(ge=1, le=8)] = 1
    """Levels below the root, H. Leaves are B^H."""
    residual: Literal["auto", "low_rank", "relu", "none"] = "auto"
    """How a query is bent before the softmax. `low_rank`: x + U ReLU(V x), taught; `relu`: the paper's x + ReLU(U x) at
    each level, joint; `none`: not at all. `auto`: `low_rank` or `relu`, as the training has it."""
    rank: Annotated[int, Field(ge=1, le=4096)] | Literal["auto"] = "auto"
    """Rows of V. `auto`: 16."""
    screen: Annotated[int, Field(ge=0, le=4096)] | Literal["auto"] = "auto"
    """Dimensions of the first pass over all leaves, taught and of height 1 alone; 0: none. `auto`: 48 from 256 leaves
    on."""
    warm_start: Literal["kmeans", "none"] = "kmeans"
    """`kmeans`: start as spherical k-means. `none`: random, as in the paper; joint alone."""

    @model_validator(mode="after")
    def _of_one_training(self) -> "EhiSpec":
        allowed = {"taught": ("auto", "low_rank", "none"), "joint": ("auto", "relu", "none")}[self.training]
        if self.residual not in allowed:
            raise ValueError(f"residual {' or '.join(allowed)} where training is {self.training}")
        if self.training == "taught" and self.warm_start == "none":
            raise ValueError("warm_start kmeans where training is taught")
        if self.screen not in ("auto", 0) and (self.training == "joint" or self.height > 1):
            raise ValueError("screen 0 or auto where training is joint or height above 1")
        if self.rank != "auto" and (self.training == "joint" or self.residual == "none"):
            raise ValueError("rank auto where training is joint or residual none")
        return self

    def leaves(self, documents: int) -> int:
        """Leaves of the tree over so many documents: B^H.

        `auto`, taught: a leaf for every four documents, up to 25 √N leaves; routing is cheap behind a screen, and
        small leaves visit fewer documents. Joint: 16 documents a leaf up to 25,600 documents, then √N / 10.
        """
        if self.branching != "auto":
            return int(self.branching**self.height)
        root = documents**0.5
        leaves = min(documents / 4, 25 * root) if self.training == "taught" else documents / max(16.0, root / 10)
        return int(max(2, round(leaves ** (1 / self.height))) ** self.height)

    def over(self, documents: int) -> "EhiSpec":
        """The same with the branching that `auto` stands for over so many documents."""
        return self.model_copy(update={"branching": round(self.leaves(documents) ** (1 / self.height))})

    @property
    def bend_rank(self) -> int:
        """Rows of V; 0 where queries are not bent."""
        if self.residual == "none":
            return 0
        return RANK if self.rank == "auto" else self.rank

    def screened(self, documents: int) -> int:
        """Dimensions of the first pass; 0: none."""
        if self.screen != "auto":
            return self.screen
        return SCREEN if self.height == 1 and self.leaves(documents) >= FEWEST_SCREENED else 0


RouterSpec = EhiSpec
