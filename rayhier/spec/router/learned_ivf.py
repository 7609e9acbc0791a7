"""`router: {type: learned_ivf}` (our method): leaves by k-means; a router learns which ones hold a query's answers."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Rate, Section, Weight
from rayhier.spec.router.tree import TreeSpec

FEWEST_SCREENED = 256
"""Least number of leaves for which an automatic `screen` makes a first pass."""
SCREEN = 48
"""Dimensions of the first pass where `screen` is auto."""
DOCUMENTS_A_QUERY = 8
"""Most documents that teach the router as queries, for each judged query: more would outweigh judged queries."""
DOCUMENTS_A_LEAF = 4
LEAVES_A_ROOT = 25


def automatic_screen(leaves: int) -> int:
    """Return the dimensions of the first pass over a number of leaves where `screen` is auto; 0: no first pass.

    >>> automatic_screen(255), automatic_screen(256)
    (0, 48)
    """
    return SCREEN if leaves >= FEWEST_SCREENED else 0


class Teaching(Section):
    """Training of the router, after the encoder's: it learns which leaves hold a query's answers."""

    epochs: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Number of passes over the queries, and documents as queries, that the router learns from."""
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Number of queries, and documents as queries, in a training step, of all workers together."""
    lr: Rate = 1e-3
    """First learning rate of AdamW; it falls to zero."""
    neighbours: Annotated[int, Field(ge=0, le=100)] = 10
    """Number of exact nearest documents of a query that count as answers, in addition to its judged answers."""
    judged: Weight = 10.0
    """Weight of a judged answer of a query in the loss; a nearest neighbour of the query has weight 1."""
    documents: Weight = 0.1
    """Weight, in the loss, of an answer of a document used as a query: the document itself or one of its neighbours; 0:
    no documents are used as queries."""
    most: Annotated[int, Field(ge=1)] = 20_000
    """Most documents that are used as queries."""

    @model_validator(mode="after")
    def _each_key_counts(self) -> Self:
        if self.judged == self.neighbours == self.documents == 0:
            raise ValueError("judged, neighbours or documents above 0: with none of them nothing is taught")
        if self.documents == 0:
            self.refuse("most", where="only where documents is above 0")
        return self


class LearnedIvfRouting(TreeSpec):
    """Leaves by k-means of trained vectors, evened out in size; a router learns which leaves hold a query's answers."""

    type: Literal["learned_ivf"]
    rank: Annotated[int, Field(ge=0, le=4096)] = 16
    """Rows of the matrix V in x + U ReLU(V x), the learned change of a query's vector x before it is compared with
    leaves; 0: no change."""
    screen: Annotated[int, Field(ge=0, le=4096)] | Literal["auto"] = "auto"
    """Dimensions of the first pass, a cheap comparison with all leaves, for height 1 only; 0: no first pass. `auto`: 48
    from 256 leaves on."""
    first_pass: Literal["projection", "codes"] = "projection"
    """Cheap comparison of a query with all leaves, for height 1; the best leaves are then scored in full. `projection`:
    by `screen` dimensions. `codes`: by four-bit codes of the leaves' weights, made when an index is opened; with fewer
    than 624 leaves all are scored in full, and a beam of type mass takes the projection all the same."""
    teaching: Teaching = Teaching()
    """Training of the router by judged queries, once the leaves exist."""

    @model_validator(mode="after")
    def _screen_is_flat(self) -> Self:
        if self.screen not in ("auto", 0) and self.height > 1:
            raise ValueError("screen 0 or auto where height is above 1")
        if self.first_pass == "codes" and self.height > 1:
            raise ValueError("first_pass projection where height is above 1: inner nodes choose the leaves")
        return self

    @property
    def codes_first(self) -> bool:
        """Return True if a search first compares queries with codes of the leaves."""
        return self.first_pass == "codes"

    @property
    def spills(self) -> bool:
        """Return True: only documents near a border between leaves get a second leaf, the share `index.spilled`."""
        return True

    @property
    def calibrates(self) -> bool:
        """Return True: dev queries calibrate the router's probabilities, so that `search.beam` may be of type mass."""
        return True

    def phases(self, *, supervised: bool) -> dict[str, int]:
        """Return the router's phase of training, name -> epochs; 0 epochs without judged queries (docs/LOG.md)."""
        return {"router": self.teaching.epochs if supervised else 0}

    def targets(self, queries: int, documents: int) -> int:
        """Estimate the number of texts that teach the router: judged queries, and documents used as queries."""
        return queries + min(documents, self.teaching.most, DOCUMENTS_A_QUERY * queries)

    def auto_leaves(self, documents: int) -> float:
        """Return the number of leaves where `branching` is auto: one for four documents, at most 25 √N for N documents.

        The first pass makes routing cheap, and with small leaves a search visits fewer documents.
        """
        return min(documents / DOCUMENTS_A_LEAF, LEAVES_A_ROOT * math.sqrt(documents))

    def multiply_adds(self, leaves: int, dimension: int) -> float:
        """Return the multiply-adds that routing a vector takes where it is compared with all leaves."""
        return float(dimension * (2 * self.rank + leaves))

    @property
    def dimensions(self) -> dict[str, int]:
        """Keys of the section that count dimensions, `rank` and `screen` -> values; 0 where `screen` is `auto`."""
        return {"rank": self.rank, "screen": 0 if self.screen == "auto" else self.screen}

    def screened(self, documents: int) -> int:
        """Return the dimensions of the first pass in an index over `documents` documents; 0: no first pass."""
        if self.screen != "auto":
            return self.screen
        return automatic_screen(self.leaves(documents)) if self.height == 1 else 0
