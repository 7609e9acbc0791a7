"""The weight of a search's score beside a cross-encoder's, chosen for a model; the stage calibrate publishes it."""

from typing import Self

from pydantic import BaseModel, ConfigDict

from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import Location

NAME = "rerank.json"


class RerankWeight(BaseModel):
    """A weight of the search's score, what each weight found for dev queries, and how the two scores are related."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    beside: float
    """Weight of the search's score, which is added to the cross-encoder's."""
    slope: float
    """Mean slope of the cross-encoder's score on the search's, over the documents read for a query; at least 0."""
    queries: int
    """Number of dev queries."""
    depth: int
    """Number of the search's best documents that the cross-encoder read for each."""
    measure: str
    """Measure by which weights were told apart, such as nDCG@10."""
    searched: float
    """Mean of the measure for the search alone."""
    measured: dict[str, float]
    """Weight -> mean of the measure over these queries."""

    @classmethod
    def open(cls, calibration: Artifact) -> Self | None:
        """Read the weight of a published calibration; None where it has none.

        InputError where the file is not as it was published.
        """
        if not calibration.names(NAME):
            return None
        return cls.model_validate(files.read_json(calibration.verified(NAME)))

    def write(self, root: Location) -> None:
        """Write the weight below `root`."""
        files.write_json(root / NAME, self.model_dump(mode="json"))
