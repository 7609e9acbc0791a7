"""Tells which leaves of an index are due for maintenance, from the numbers of their rows."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from rayhier.arrays import Ints
from rayhier.spec import JobSpec
from rayhier.spec.index_size import MOST_LOSSLESS
from rayhier.storage.leaf_map import Manifest

GROWN, SHRUNK = 1.5, 0.25
"""Rows, as shares of the mean of an index made anew, above which a leaf is split, and below which it is given up."""
FEWEST = 3
"""Most rows of a leaf that is not split however small the others are."""
EVEN = 1.2
"""Imbalance of an index made anew."""
DEAR, EMPTIER = 1.25, 0.2
"""Maintenance pays where searches compare 1.25 times the rows of an index made anew, or where a fifth of the leaves is
to be given up."""


@dataclass(frozen=True)
class Due:
    """How the leaves of a version compare with those of an index made anew."""

    mean: float
    """Mean rows of a leaf in an index made anew."""
    dear: float
    """Rows that searches compare, as a multiple of those in an index made anew: large leaves are visited most."""
    grown: Ints
    """Leaves to be split."""
    shrunk: Ints
    """Leaves to be given up."""
    emptier: float
    """Share of the leaves in use that is to be given up."""

    @classmethod
    def of(cls, manifest: Manifest, spec: JobSpec) -> Self:
        """Compare the rows of a version's leaves; where some were given up, those without rows do not count."""
        count_L, documents = np.array(manifest.counts), max(1, manifest.documents)
        # Where more documents have fewer leaves, as they hold codes, an index that grew past that keeps its leaves.
        leaves = max(spec.leaves(documents), spec.leaves(min(documents, MOST_LOSSLESS)))
        mean = max(1, manifest.rows) / leaves
        dear = float((count_L**2).sum() / max(1, manifest.rows)) / (EVEN * mean)
        shrunk = np.flatnonzero(count_L < SHRUNK * mean)
        if manifest.revision is not None:
            shrunk = shrunk[count_L[shrunk] > 0]
        grown = np.flatnonzero(count_L > largest(mean))
        return cls(mean, dear, grown, shrunk, len(shrunk) / max(1, manifest.leaves))

    def advice(self) -> list[str]:
        """Return lines that say why maintenance pays; none where it does not."""
        lines = []
        if self.dear > DEAR and len(self.grown):
            times = f"searches compare {self.dear:.2f} times the rows of an index made anew (above {DEAR})"
            lines.append(f"maintain: {times}; {len(self.grown):,} leaves are to be split")
        if self.emptier > EMPTIER:
            lines.append(f"maintain: {self.emptier:.0%} of the leaves are nearly empty (above {EMPTIER:.0%})")
        return lines


def largest(mean: float) -> float:
    """Return the most rows of a leaf that is not split, for the mean rows of a leaf in an index made anew."""
    return max(GROWN * mean, FEWEST)
