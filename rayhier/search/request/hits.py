"""Results of a search: for each query the documents with their texts, and the cost in leaves, rows and calls."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from rayhier.arrays import Ints
from rayhier.dataset.ranking import Ranking


class Hit(NamedTuple):
    """A document that a search found for a query, with its score."""

    id: str
    """Id of the document. For a corpus of passages, id of the document that the passage is from."""
    score: float
    leaf: int
    title: str
    text: str
    """Text of the document. For a corpus of passages, text of the document's best passage."""
    fields: dict[str, Any]
    """The corpus's declared fields, by name."""
    estimated: bool = False
    """True if the score was estimated from scores of documents that the cross-encoder read."""


@dataclass(frozen=True)
class Answer:
    """The results of a query, best first, and the cost of finding them."""

    hits: list[Hit]
    visits: Ints = field(compare=False)
    """Numbers of the leaves visited, in the order of visit. -1 means none."""
    documents: int
    """Number of distinct documents whose scores were computed."""
    fraction: float
    """`documents` as a fraction of the corpus, 0 to 1."""
    scored: int = 0
    """Number of scores computed. A document in leaves of several shard groups may count in each."""
    calls: int | None = None
    """Number of documents that the cross-encoder read. None if results were not re-ranked."""
    enough: bool = True
    """True if there are `k` results. False if the visited leaves hold fewer documents that match."""

    @cached_property
    def leaves(self) -> list[int]:
        """Numbers of the leaves visited, in the order of visit. The list is made at first use, since it may be long."""
        visit_B = np.asarray(self.visits)
        return list(visit_B[visit_B >= 0].tolist())


def answers(ranking: Ranking, leaves_QB: Ints, total: int, k: int) -> list[Answer]:
    """Make answers of k results from a ranking, visited leaves [q, β] (-1: none) and the corpus's size `total`."""
    records = ranking.records
    call_Q = [None] * len(ranking.row_QK) if ranking.calls_Q is None else ranking.calls_Q.tolist()
    found = []
    for rows, scores, leaf_B, visited, scanned, calls in zip(
        ranking.row_QK.tolist(),
        ranking.score_QK.tolist(),
        leaves_QB,
        ranking.visited_Q.tolist(),
        ranking.scanned_Q.tolist(),
        call_Q,
        strict=True,
    ):
        hits = []
        for place, (row, score) in enumerate(zip(rows, scores, strict=True)):
            if row >= 0:
                id_, leaf, title, text, fields = records[row]
                hits.append(Hit(id_, score, leaf, title, text, fields, calls is not None and place >= calls))
        fraction = min(1.0, visited / max(1, total))  # removed rows of leaf files are compared until they are folded
        found.append(Answer(hits, leaf_B, visited, fraction, scanned, calls, len(hits) >= k))
    return found
