"""`router: {type: learned_ivf}` (ours): k-means leaves, and queries taught which of them hold their answers."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.router.tree import Tree
from rayhier.spec.section import Rate, Section, Weight

FEWEST_SCREENED = 256
SCREEN = 48
DOCUMENTS_A_QUERY = 8
"""Documents at most that teach beside each judged query: they keep the tail in order, more would drown the queries."""
DOCUMENTS_A_LEAF = 4
LEAVES_A_ROOT = 25


class Teaching(Section):
    """How the router learns which leaves hold the answers, after the encoder has trained."""

    epochs: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Passes over queries and documents."""
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Queries and documents a step, over all workers."""
    lr: Rate = 1e-3
    """Learning rate of AdamW, falling to zero."""
    neighbours: Annotated[int, Field(ge=0, le=100)] = 10
    """Exact nearest documents of a query (a document) that count as answers beside the judged ones."""
    judged: Weight = 10.0
    """Weight of a judged answer; a neighbour's is 1."""
    documents: Weight = 0.1
    """Weight of documents as queries for themselves and their neighbours, where there are judged queries."""
    most: Annotated[int, Field(ge=1)] = 20_000
    """Documents at most that serve as queries."""


class LearnedIvf(Tree):
    """Leaves are k-means cells of the trained vectors, evened by prices; a router is taught which hold the answers."""

    type: Literal["learned_ivf"]
    rank: Annotated[int, Field(ge=0, le=4096)] = 16
    """Rows of V in x + U ReLU(V x), by which a query is bent before it is compared with leaves; 0: not at all."""
    screen: Annotated[int, Field(ge=0, le=4096)] | Literal["auto"] = "auto"
    """Dimensions of the first pass over all leaves, of height 1 alone; 0: none. `auto`: 48 from 256 leaves on."""
    teaching: Teaching = Teaching()
    """What the router learns from judged queries, once there are leaves."""

    @model_validator(mode="after")
    def _screen_is_flat(self) -> Self:
        if self.screen not in ("auto", 0) and self.height > 1:
            raise ValueError("screen 0 or auto where height is above 1")
        return self

    @property
    def spills(self) -> bool:
        """Whether it finds a border, so that `index.spilled` of the documents lie in two leaves."""
        return True

    @property
    def calibrates(self) -> bool:
        """Whether it learns from dev queries how probable an answer is, so that each query may have its own beam."""
        return True

    @property
    def reads(self) -> Literal["vectors", "tokens"]:
        """What routing needs of a text."""
        return "vectors"

    def phases(self, *, supervised: bool) -> dict[str, int]:
        """Epochs of each phase of training that is its own; documents alone teach nothing that helps queries."""
        return {"router": self.teaching.epochs if supervised else 0}

    def lessons(self, queries: int, documents: int) -> int:
        """Queries and documents that teach it, about, where so many queries are judged."""
        return queries + min(documents, self.teaching.most, DOCUMENTS_A_QUERY * queries)

    def auto_leaves(self, documents: int) -> float:
        """Leaves where `branching` is auto: one for every four documents, up to 25 √N.

        Routing is cheap behind a screen, and small leaves visit fewer documents.
        """
        return min(documents / DOCUMENTS_A_LEAF, LEAVES_A_ROOT * math.sqrt(documents))

    def multiply_adds(self, documents: int, dimension: int) -> float:
        """Multiply-adds of one vector through a router over so many documents, every leaf scored."""
        return float(dimension * (2 * self.rank + self.leaves(documents)))

    def screened(self, documents: int) -> int:
        """Dimensions of the first pass; 0: none."""
        if self.screen != "auto":
            return self.screen
        return SCREEN if self.height == 1 and self.leaves(documents) >= FEWEST_SCREENED else 0
