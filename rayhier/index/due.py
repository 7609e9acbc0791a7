"""Tells which leaves of an index are due for maintenance, from the numbers of their rows."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from rayhier.arrays import Ints
from rayhier.spec import JobSpec
from rayhier.spec.index_size import MOST_LOSSLESS
from rayhier.storage.leaf_map import Manifest

GROWN, SHRUNK = 1.5, 0.25
"""A leaf above 1.5 times the mean rows of a rebuilt index is split, and one below a quarter is given up."""
FEWEST = 3
"""Most rows of a leaf that is not split however small the others are."""
EVEN = 1.2
"""Imbalance of a rebuilt index."""
DEAR, EMPTIER = 1.25, 0.2
"""Maintenance pays if searches compare 1.25 times the rows of a rebuilt index, or a fifth of the leaves is to be given
up."""


@dataclass(frozen=True)
class Due:
    """How the leaves of a version compare with those of a rebuilt index."""

    mean: float
    """Mean rows of a leaf in a rebuilt index."""
    dear: float
    """Rows that searches compare, as a multiple of those in a rebuilt index: large leaves are visited most."""
    grown: Ints
    shrunk: Ints
    emptier: float
    """Share of the leaves in use that is to be given up."""

    @classmethod
    def of(cls, manifest: Manifest, spec: JobSpec) -> Self:
        """Compare the rows of a version's leaves. If some were given up, those without rows do not count."""
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
        """Return lines that say why maintenance pays, if it does."""
        lines = []
        if self.dear > DEAR and len(self.grown):
            times = f"searches compare {self.dear:.2f} times the rows of an index made anew (above {DEAR})"
            lines.append(f"maintain: {times}; {len(self.grown):,} leaves are to be split")
        if self.emptier > EMPTIER:
            lines.append(f"maintain: {self.emptier:.0%} of the leaves are nearly empty (above {EMPTIER:.0%})")
        return lines


def largest(mean: float) -> float:
    """Return the most rows of a leaf that is not split."""
    return max(GROWN * mean, FEWEST)
