"""`router: {type: learned_ivf}` (our method): leaves by k-means, and a router that learns which leaves to visit."""

import math
from typing import Literal

from rayhier.spec.index import MOST_SMALL
from rayhier.spec.router.tree import TreeSpec

RANK = 16
"""Rows of the matrix V in x + U ReLU(V x), the learned change of a query's vector x."""
DOCUMENTS_A_QUERY = 8
"""Largest number of documents that teach the router as queries, per judged query. More documents would outweigh these
queries."""
DOCUMENTS_A_LEAF = 4
LEAVES_A_ROOT, CODED_LEAVES_A_ROOT = 25, 4
EPOCHS = 5
"""Passes over the texts that teach the router, after the encoder's training."""
MOST_ASKING = 20_000
"""Largest number of documents that teach the router as queries."""


class LearnedIvfRouting(TreeSpec):
    """Leaves of similar size, by k-means of trained vectors. The router learns which leaves hold a query's answers."""

    type: Literal["learned_ivf"]

    @property
    def spills(self) -> bool:
        return True

    @property
    def splits_leaves(self) -> bool:
        return True

    def phases(self, *, supervised: bool) -> dict[str, int]:
        """Return the router's phase of training, name -> epochs. Without judged queries, the phase has 0 epochs."""
        return {"router": EPOCHS if supervised else 0}

    def targets(self, queries: int, documents: int) -> int:
        return queries + min(documents, MOST_ASKING, DOCUMENTS_A_QUERY * queries)

    def auto_leaves(self, documents: int) -> float:
        """Return the number of leaves for `branching: auto`: one for four documents, but at most 25 √N for N documents.

        With small leaves a search visits fewer documents. Beyond 200,000 documents, a scan compares 32 codes at a time,
        and 4 √N leaves take the least time (docs/results/search.md).
        """
        a_root = LEAVES_A_ROOT if documents <= MOST_SMALL else CODED_LEAVES_A_ROOT
        return min(documents / DOCUMENTS_A_LEAF, a_root * math.sqrt(documents))
