"""`router: {type: learned_ivf}` (ours): k-means leaves; a router learns which of them hold a query's answers."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Rate, Section, Weight
from rayhier.spec.router.tree import TreeSpec

FEWEST_SCREENED = 256
"""Least leaves where an automatic `screen` is used."""
SCREEN = 48
"""Dimensions of an automatic `screen`."""
DOCUMENTS_A_QUERY = 8
"""Most documents used as queries for each judged query: more would outweigh the queries."""
DOCUMENTS_A_LEAF = 4
LEAVES_A_ROOT = 25


def automatic_screen(leaves: int) -> int:
    """Dimensions of an automatic `screen` over a number of leaves; 0: no screen.

    >>> automatic_screen(255), automatic_screen(256)
    (0, 48)
    """
    return SCREEN if leaves >= FEWEST_SCREENED else 0


class Teaching(Section):
    """Training of the router, after the encoder's: it learns which leaves hold a query's answers."""

    epochs: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Passes over the queries and documents that the router learns from."""
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Queries and documents of a training step, on all workers together."""
    lr: Rate = 1e-3
    """Learning rate of AdamW, falling to zero."""
    neighbours: Annotated[int, Field(ge=0, le=100)] = 10
    """Exact nearest documents of a query that count as answers, besides its judged documents."""
    judged: Weight = 10.0
    """Weight of a judged answer of a query; a nearest neighbour of the query has weight 1."""
    documents: Weight = 0.1
    """Weight of an answer of a document used as a query: the document itself or one of its neighbours."""
    most: Annotated[int, Field(ge=1)] = 20_000
    """Most documents used as queries."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.judged == self.neighbours == self.documents == 0:
            raise ValueError("judged, neighbours or documents above 0: with none of them nothing is taught")
        if self.documents == 0:
            self.refuse("most", where="only where documents is above 0")
        return self


class LearnedIvfRouting(TreeSpec):
    """Leaves are k-means cells of the trained vectors, full ones penalised; a router learns which hold answers."""

    type: Literal["learned_ivf"]
    rank: Annotated[int, Field(ge=0, le=4096)] = 16
    """Rows of V in x + U ReLU(V x), the change to a query's vector before it is compared with leaves; 0: no change."""
    screen: Annotated[int, Field(ge=0, le=4096)] | Literal["auto"] = "auto"
    """Dimensions of a first, cheap pass over all leaves, for height 1 alone; 0: no such pass. `auto`: 48 from 256
    leaves on."""
    teaching: Teaching = Teaching()
    """How the router learns from judged queries, once the leaves exist."""

    @model_validator(mode="after")
    def _screen_is_flat(self) -> Self:
        if self.screen not in ("auto", 0) and self.height > 1:
            raise ValueError("screen 0 or auto where height is above 1")
        return self

    @property
    def spills(self) -> bool:
        """Return True: only documents near a border get a second leaf, a share of `index.spilled`."""
        return True

    @property
    def calibrates(self) -> bool:
        """Return True: dev queries calibrate the router's probabilities, for a beam per query."""
        return True

    def phases(self, *, supervised: bool) -> dict[str, int]:
        """Phases in which only the router trains, name -> epochs; 0 without judged queries (docs/LOG.md)."""
        return {"router": self.teaching.epochs if supervised else 0}

    def targets(self, queries: int, documents: int) -> int:
        """Estimate the number of texts that teach the router, with `queries` judged queries."""
        return queries + min(documents, self.teaching.most, DOCUMENTS_A_QUERY * queries)

    def auto_leaves(self, documents: int) -> float:
        """Return the leaves where `branching` is auto: one for every four documents, at most 25 √N for N documents.

        The screen makes routing cheap, and with small leaves a search visits fewer documents.
        """
        return min(documents / DOCUMENTS_A_LEAF, LEAVES_A_ROOT * math.sqrt(documents))

    def multiply_adds(self, leaves: int, dimension: int) -> float:
        """Multiply-adds of routing one vector where every leaf is scored."""
        return float(dimension * (2 * self.rank + leaves))

    @property
    def dimensions(self) -> dict[str, int]:
        """Keys that count dimensions of the vectors, with their values: rank and screen."""
        return {"rank": self.rank, "screen": 0 if self.screen == "auto" else self.screen}

    def screened(self, documents: int) -> int:
        """Dimensions of the first pass over the leaves; 0: no such pass."""
        if self.screen != "auto":
            return self.screen
        return automatic_screen(self.leaves(documents)) if self.height == 1 else 0
