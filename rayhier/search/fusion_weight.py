"""The weight of BM25 in hybrid searches that was chosen for a trained model, as the stage calibrate publishes it."""

from typing import Self

from pydantic import BaseModel, ConfigDict

from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.paths import Location

NAME = "weight.json"


class FusionWeight(BaseModel):
    """A weight of BM25, and what each weight found for the dev queries."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    weight: float
    queries: int
    """Number of dev queries."""
    measure: str
    """Measure by which weights were told apart, such as nDCG@10."""
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
