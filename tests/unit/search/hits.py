"""What a scan finds, query by query."""

from dataclasses import dataclass

from rayhier.search.request.hits import Hit, answers


@dataclass(frozen=True)
class Part:
    """Hits of one query and what they cost."""

    hits: list[Hit]
    visited: int
    scanned: int


def scan(leaves, query_QM, leaves_QB, k):
    """Hits, documents visited and rows scanned of each query."""
    ranking = leaves.scan(query_QM, leaves_QB, k)
    counts = zip(ranking.visited_Q.tolist(), ranking.scanned_Q.tolist(), strict=True)
    found = answers(ranking, leaves_QB, 1, k)
    return [Part(answer.hits, *own) for answer, own in zip(found, counts, strict=True)]
