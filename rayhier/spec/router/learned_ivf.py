"""`router: {type: learned_ivf}` (our method): leaves by k-means; a router learns which ones hold a query's answers."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rayhier.spec.base import Rate, Section, Weight
from rayhier.spec.index_size import MOST_LOSSLESS
from rayhier.spec.router.common import FirstPass
from rayhier.spec.router.tree import TreeSpec

DOCUMENTS_A_QUERY = 8
"""Most documents that teach the router as queries, for each judged query: more would outweigh judged queries."""
DOCUMENTS_A_LEAF = 4
LEAVES_A_ROOT, CODED_LEAVES_A_ROOT = 25, 4
FEWEST_GROUPED, PROBES = 16_384, 16
"""Least number of leaves that lie in groups, about as many as a group has leaves; and number of nearest groups with
whose leaves a document is then compared."""


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
    first_pass: FirstPass = "auto"
    """Comparison of a query with all leaves before the best are scored in full. `auto`: by four-bit codes of the
    leaves' weights, made when an index is opened, for height 1 from 624 leaves on; `none`: all leaves are scored in
    full."""
    teaching: Teaching = Teaching()
    """Training of the router by judged queries, once the leaves exist."""

    @property
    def codes_first(self) -> bool:
        """Return True if a search first compares queries with codes of the leaves, where there are many."""
        return self.first_pass == "auto"

    @property
    def spills(self) -> bool:
        """Return True: only documents near a border between leaves get a second leaf, the share `index.spilled`."""
        return True

    @property
    def splits_leaves(self) -> bool:
        """Return True: leaves are split and given up as the index changes."""
        return True

    def phases(self, *, supervised: bool) -> dict[str, int]:
        """Return the router's phase of training, name -> epochs; 0 epochs without judged queries (docs/LOG.md)."""
        return {"router": self.teaching.epochs if supervised else 0}

    def targets(self, queries: int, documents: int) -> int:
        """Estimate the number of texts that teach the router: judged queries, and documents used as queries."""
        return queries + min(documents, self.teaching.most, DOCUMENTS_A_QUERY * queries)

    def auto_leaves(self, documents: int) -> float:
        """Return the number of leaves where `branching` is auto: one for four documents, at most 25 √N for N documents.

        With small leaves a search visits fewer documents. Beyond 200,000 documents leaves hold codes, of which 32 are
        compared at a time, and 4 √N leaves take the least time (docs/search.md).
        """
        a_root = LEAVES_A_ROOT if documents <= MOST_LOSSLESS else CODED_LEAVES_A_ROOT
        return min(documents / DOCUMENTS_A_LEAF, a_root * math.sqrt(documents))

    def multiply_adds(self, leaves: int, dimension: int) -> float:
        """Return the multiply-adds that routing a vector takes where it is compared with all leaves."""
        return float(dimension * (2 * self.rank + leaves))

    def placing(self, leaves: int, dimension: int) -> float:
        """Return the multiply-adds that placing a document takes: with very many leaves it meets the nearest groups."""
        compared = leaves if leaves < FEWEST_GROUPED else math.sqrt(leaves) * (1 + PROBES)
        return float(dimension * compared)

    @property
    def dimensions(self) -> dict[str, int]:
        """Key of the section that counts dimensions, `rank` -> its value."""
        return {"rank": self.rank}
