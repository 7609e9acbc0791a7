"""Calibration of a promised recall: the floor of leaves' densities with which dev queries find enough documents.

Conformal risk control (Angelopoulos, Bates, Fisch, Lei, Schuster, "Conformal Risk Control", 2022, equation 4). The loss
of a query is the share of its exact best k documents that it misses. It falls from at most 1 to 0 as the floor falls
and the query visits more leaves. With n calibration queries of mean loss R, the mean loss of a new query that is
exchangeable with them is at most n / (n + 1) R + 1 / (n + 1): the new query may miss everything.

The mean is over draws of the calibration queries too: with other dev queries the recall of the served index would be a
little more or less.

Shapes: Q calibration queries, K exact best documents of each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats
from rayhier.spec import InputError
from rayhier.spec.search import RecallBeam
from rayhier.storage import columns, files
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import Location

NAME = "calibration.parquet"
DIGITS = 4
"""Decimals to which a floor is rounded down: machines and batches differ in the last bits of a density."""


@dataclass(frozen=True)
class Calibration:
    """Calibration queries with the floors at which each of their exact best documents is found."""

    floor_QK: Floats
    """Largest floors [q, k] with which a query visits a leaf that holds the document."""

    @classmethod
    def open(cls, calibration: Artifact) -> Self:
        """Read a published calibration; InputError where its file is not as published."""
        return cls(columns.matrix(files.read_table(calibration.verified(NAME), ["floors"])["floors"]))

    def write(self, root: Location, query_ids: Sequence[str]) -> None:
        """Write the calibration below `root`, with the ids [q] of its queries."""
        floors = columns.vector_column(self.floor_QK, pa.float32())
        table = pa.table({"query_id": pa.array(query_ids, pa.string()), "floors": floors})
        files.write_parquet(root, NAME, [table], table.schema)

    @property
    def queries(self) -> int:
        """Number of calibration queries."""
        return len(self.floor_QK)

    def floor(self, beam: RecallBeam) -> float:
        """Compute the largest floor with which at least the share `beam.target` is promised.

        InputError where there are too few queries.
        """
        n, k = self.floor_QK.shape
        # Of all n·k documents as many may be missed, so that n / (n + 1) R + 1 / (n + 1) is at most 1 - target.
        missed = math.floor(((1 - beam.target) * (n + 1) - 1) * k + 1e-6)
        if n < beam.least_queries or missed < 0:
            raise InputError(
                f"search.beam.target: got {beam.target} with {n:,} dev queries; allowed: at least "
                f"{beam.least_queries:,} dev queries"
            )
        floor = float(np.partition(self.floor_QK, missed, axis=None)[missed])
        return float(math.floor(floor * 10**DIGITS) / 10**DIGITS)

    def promised(self, floor: float) -> float:
        """Compute the mean recall that searches with a floor have at least, for queries like the calibration's.

        >>> Calibration(np.array([[0, -1], [2, -3]], np.float32)).promised(-1)  # one of four is missed: 2/3 1/4 + 1/3
        0.5
        """
        loss, n = float((self.floor_QK < floor).mean()), self.queries
        return 1 - (n * loss + 1) / (n + 1)
