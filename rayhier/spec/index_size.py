"""Size of an index, from which the spec's automatic choices of a search are made, and the memory that searches take."""

from dataclasses import dataclass

CODED: dict[str, float] = {"flat": 4, "fp16": 2, "pq": 1 / 8}
"""Bytes that each codec takes to store one dimension of a vector (`rayhier/search/segment/codecs.py`)."""
ROW, SECOND = 12, 8
"""Bytes that a scan holds in memory for a row beside its vector; and more where documents may have a second leaf."""
MOST_LOSSLESS = 200_000
"""Most documents of an index whose leaves hold vectors without loss where `codec` is auto. Of more documents, leaves of
codes are scanned in less time (docs/search.md)."""


@dataclass(frozen=True)
class IndexSize:
    """Numbers of documents, rows and leaves of an index, and size of its vectors."""

    documents: int
    rows: float
    """Number of rows; a document in two leaves has two. A plan estimates it."""
    dimension: int
    leaves: int

    def coded_rows(self, codec: str) -> float:
        """Estimate the bytes that leaves take in a codec, in memory where it is `pq`, else in mapped files."""
        second = SECOND if self.rows > self.documents else 0
        return self.rows * (CODED[codec] * self.dimension + ROW + second)
