"""A beam that queries choose: the smallest with which they find a share of what an exact search finds.

If there are few dev queries, documents serve as queries. Documents lie nearer to each other than queries lie to
documents. So documents as queries may miss only half the share that dev queries may miss. Shapes: Q queries, K exact
best documents of each query.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from rayhier.arrays import Ints
from rayhier.storage import columns, current, parquet
from rayhier.storage.artifact import Artifact
from rayhier.storage.current import Current
from rayhier.storage.paths import Location

NAME = "calibration.parquet"
DOCUMENTS = {b"queries": b"documents"}
"""Metadata of a calibration's file whose queries are documents."""
Queried = Literal["dev queries", "documents"]


class ChosenBeam(BaseModel):
    """The beam that queries chose for a number of results."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    beam: int
    """Number of leaves that a query visits."""
    k: int
    recall: float
    """Share of the exact best `k` documents that the queries find with this beam, on average."""
    queries: int
    of: Queried = "dev queries"
    """Queries that chose the beam: dev queries, or documents as queries."""


@dataclass(frozen=True)
class Calibration:
    """Number of leaves that each query visits, in its order, until it has found its exact best documents."""

    position_QK: Ints
    """Position [q, k], from 1, of the first leaf with each exact best document, in the query's order of leaves."""
    of: Queried = "dev queries"

    @classmethod
    def open(cls, calibration: Artifact) -> Self | None:
        """Read a published calibration. None if no queries chose a beam. InputError if its file is not as published."""
        if not calibration.names(NAME):
            return None
        table = parquet.read(calibration.verified(NAME), ["positions"])
        of: Queried = "documents" if table.schema.metadata == DOCUMENTS else "dev queries"
        return cls(columns.as_stored(table["positions"]), of)

    def write(self, root: Location, query_ids: Sequence[str]) -> None:
        """Write the calibration below `root`, with the ids [q] of its queries."""
        positions = columns.vector_column(self.position_QK, pa.int32())
        table = pa.table({"query_id": pa.array(query_ids, pa.string()), "positions": positions})
        table = table.replace_schema_metadata(DOCUMENTS if self.of == "documents" else None)
        parquet.write(root, NAME, [table], table.schema)

    def chosen(self, recall: float, k: int) -> ChosenBeam:
        """Return the smallest beam with which queries find at least a share of their exact best k documents.

        Documents that serve as queries may miss only the share (1 - recall) / 2. If k is larger than the calibration's
        k, the calibration's k counts.

        >>> Calibration(np.array([[1, 4], [2, 3]])).chosen(0.75, k=2)
        ChosenBeam(beam=3, k=2, recall=0.75, queries=2, of='dev queries')
        """
        return self._chosen(recall, min(k, self.position_QK.shape[1]))

    @cached_property
    def _chosen(self) -> Callable[[float, int], ChosenBeam]:
        return lru_cache(1_000)(self._choose)

    def _choose(self, recall: float, k: int) -> ChosenBeam:
        position_QK = self.position_QK[:, :k]
        recall = recall if self.of == "dev queries" else 1 - (1 - recall) / 2
        last = math.ceil(recall * position_QK.size - 1e-6) - 1
        beam = int(np.partition(position_QK, last, axis=None)[last])
        found = float((position_QK <= beam).mean())
        return ChosenBeam(beam=beam, k=k, recall=found, queries=len(position_QK), of=self.of)


def calibration_of(workdir: Location, now: Current) -> Calibration | None:
    """Open the calibration of the index that `now` names. None if no queries chose a beam."""
    return Calibration.open(current.artifact(workdir, now, "calibration")) if now.spec.chooses_beam else None
