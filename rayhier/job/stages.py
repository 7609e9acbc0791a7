"""The stages of a run, in order. This module imports no other module, so that the command line starts quickly."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rayhier.storage.artifact import Kind


@dataclass(frozen=True)
class Stage:
    """Declaration of a stage of a run. `_Steps` has the stage's inputs, a stage.py its code, and hours.py its hours."""

    kind: "Kind"
    code: int
    """Version of the stage's code, a part of fingerprints. The version grows when equal input gives another result."""
    workers: str
    """Field of `cluster` with the stage's workers."""


STAGES = {
    "corpus": Stage("corpus", 4, "corpus"),
    "generate": Stage("generated", 1, "embed"),
    "embed": Stage("vectors", 2, "embed"),
    "test": Stage("test", 2, "evaluate"),
    "cross_encoder": Stage("cross_encoder", 2, "train"),
    "scores": Stage("scores", 1, "embed"),
    "train": Stage("model", 16, "train"),
    "index": Stage("index", 6, "index"),
    "factors": Stage("factors", 2, "train"),
    "calibrate": Stage("calibration", 9, "evaluate"),
    "evaluate": Stage("evaluate", 15, "evaluate"),
}
