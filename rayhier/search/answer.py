"""What a search answers with, and how the answers of several parts of an index become one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

OWN = ("doc_id", "parent", "leaf", "rank", "leaves", "log_prob", "vector", "title", "text")
"""Columns of every leaf map; the others are the corpus's fields."""


@dataclass(frozen=True)
class Hit:
    """One result of a query."""

    id: str
    """Of the document; of the whole one where the corpus is cut into passages."""
    score: float
    leaf: int
    title: str
    text: str
    """Of the passage that scored best, where the corpus is cut into passages."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The corpus's declared fields."""


def hit(row: dict[str, Any], score: float) -> Hit:
    """A row of a leaf map as a result."""
    return Hit(
        row.get("parent", row["doc_id"]),
        float(score),
        row["leaf"],
        row.get("title", ""),
        row.get("text", ""),
        {name: value for name, value in row.items() if name not in OWN},
    )


@dataclass(frozen=True)
class Partial:
    """What one part of an index found for one query."""

    hits: list[Hit]
    visited: int
    """Distinct documents scored here that no part scores at a lower rank."""
    scanned: int
    """Rows scored here."""


@dataclass(frozen=True)
class Answer:
    """Results of one query, best first, and what they cost."""

    hits: list[Hit]
    leaves: list[int]
    """Leaves visited, most probable first."""
    documents: int
    """Distinct documents scored."""
    fraction: float
    """The same, as a fraction of the corpus."""


def merge(parts: Sequence[Partial], leaves: list[int], k: int, total: int) -> Answer:
    """One query's answer from every part's; `total` documents in the corpus. Ties go by id; leaf -1 is none."""
    visited = sum(part.visited for part in parts)
    hits = best(hit for part in parts for hit in part.hits)[:k]
    return Answer(hits, [leaf for leaf in leaves if leaf >= 0], visited, visited / max(1, total))


def best(hits: Iterable[Hit]) -> list[Hit]:
    """Hits best first, each id once.

    >>> [hit.id for hit in best([Hit("a", 0.1, 0, "", ""), Hit("b", 0.5, 1, "", ""), Hit("a", 0.7, 2, "", "")])]
    ['a', 'b']
    """
    kept: dict[str, Hit] = {}
    for hit in sorted(hits, key=lambda hit: (-hit.score, hit.id)):
        kept.setdefault(hit.id, hit)
    return list(kept.values())
