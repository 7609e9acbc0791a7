"""Results of a search: for each query the documents with their texts, and the cost in leaves, rows and calls."""

from dataclasses import dataclass, field
from typing import Any

from rayhier.arrays import Ints
from rayhier.dataset.ranking import ID, Ranking

OWN = (ID, "leaf", "title", "text")
"""Columns that every result has. Further columns are the corpus's declared fields."""


@dataclass(frozen=True)
class Hit:
    """A document that a search found for a query, with its score."""

    id: str
    """Id of the document, or, where the corpus is cut into passages, of the document that the passage is from."""
    score: float
    leaf: int
    title: str
    text: str
    """Text of the document, or of its best passage where the corpus is cut into passages."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The corpus's declared fields, by name."""
    estimated: bool = False
    """True if the score was estimated from those of documents that the cross-encoder read."""


@dataclass(frozen=True)
class Answer:
    """The results of a query, best first, and the cost of finding them."""

    hits: list[Hit]
    leaves: list[int]
    """Numbers of the leaves visited, in the order of visit."""
    documents: int
    """Number of distinct documents whose scores were computed."""
    fraction: float
    """Number of distinct documents whose scores were computed, as a fraction of the corpus, 0 to 1."""
    scored: int = 0
    """Number of scores computed. A document in leaves of several shard groups may count in each."""
    calls: int | None = None
    """Number of documents that the cross-encoder read. None if results were not re-ranked."""
    enough: bool = True
    """True if there are as many results as the query asked for. False if fewer documents match in its leaves."""


def answers(ranking: Ranking, leaves_QB: Ints, total: int, k: int) -> list[Answer]:
    """Make an `Answer` for each query of a ranking.

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
            min(1.0, visited / max(1, total)),  # removed rows of leaf files are compared until they are folded
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
