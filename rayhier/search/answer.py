"""Results of a search: each query's documents with their texts, and the leaves, rows and calls that they cost."""

from dataclasses import dataclass, field
from typing import Any

from rayhier.arrays import Ints
from rayhier.dataset.ranking import ID, Ranking

OWN = (ID, "leaf", "title", "text")
"""Columns of every result; the others are the corpus's fields."""


@dataclass(frozen=True)
class Hit:
    """One result of a query."""

    id: str
    """Id of the document; of the document that the passage is cut from, where the corpus is cut into passages."""
    score: float
    leaf: int
    title: str
    text: str
    """Text of the passage that scored best, where the corpus is cut into passages."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The corpus's declared fields."""
    estimated: bool = False
    """True for a re-ranked result that the cross-encoder did not read: its score is estimated from those read."""


@dataclass(frozen=True)
class Answer:
    """Results of a query, best first, and their cost."""

    hits: list[Hit]
    leaves: list[int]
    """Leaves visited, in the order of visit."""
    documents: int
    """Distinct documents scored."""
    fraction: float
    """Distinct documents scored, as a fraction of the corpus."""
    scored: int = 0
    """Scores computed from vectors or the deepest level: rows of leaves, or of a shortlist, one in each shard group."""
    calls: int | None = None
    """Documents that the cross-encoder read; None where nothing was re-ranked."""
    enough: bool = True
    """True where there are `k` results; False where the visited leaves hold fewer documents that match."""


def answers(ranking: Ranking, leaves_QB: Ints, total: int, k: int) -> list[Answer]:
    """Return an `Answer` for each query of a ranking.

    `leaves_QB` [q, β] are the leaves that each query visited, -1 for none; `total` is the number of documents in the
    corpus, `k` the number of results that a query asked for.
    """
    documents = ranking.documents.to_pylist()
    call_Q = [None] * len(ranking.row_QK) if ranking.calls_Q is None else ranking.calls_Q.tolist()
    return [
        Answer(
            [
                _hit(documents[row], score, estimated=calls is not None and place >= calls)
                for place, (row, score) in enumerate(zip(rows, scores, strict=True))
                if row >= 0
            ],
            [leaf for leaf in leaves if leaf >= 0],
            visited,
            visited / max(1, total),
            scored,
            calls,
            sum(row >= 0 for row in rows) >= k,
        )
        for rows, scores, leaves, visited, scored, calls in zip(
            ranking.row_QK.tolist(),
            ranking.score_QK.tolist(),
            leaves_QB.tolist(),
            ranking.visited_Q.tolist(),
            ranking.scanned_Q.tolist(),
            call_Q,
            strict=True,
        )
    ]


def _hit(document: dict[str, Any], score: float, *, estimated: bool) -> Hit:
    fields = {name: value for name, value in document.items() if name not in OWN}
    return Hit(document[ID], score, document["leaf"], document["title"], document["text"], fields, estimated)
