"""Size of an index, from which the spec's automatic choices of a search are made, and the memory that searches take."""

from dataclasses import dataclass

CODE = 1 / 4
"""Bytes of a code for each dimension of a vector (`rayhier/search/segment/segment.py`)."""
ROW, SECOND = 12, 8
"""Bytes that a scan reads of a row next to its code, and further bytes if documents may have a second leaf."""
MOST_SMALL = 200_000
"""Most documents of an index of which `auto` chooses few leaves, and a beam by dev queries (docs/search.md)."""


@dataclass(frozen=True)
class IndexSize:
    """Numbers of documents, rows and leaves of an index, and size of its vectors."""

    documents: int
    rows: float
    """Number of rows; a document in two leaves has two. A plan estimates it."""
    dimension: int
    leaves: int

    @property
    def coded_bytes(self) -> float:
        """Estimate the bytes of codes, which searches read all of over time."""
        second = SECOND if self.rows > self.documents else 0
        return self.rows * (CODE * self.dimension + ROW + second)
