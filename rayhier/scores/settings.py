"""Settings of a published cross-encoder, and the scorer that is opened with them."""

from pydantic import BaseModel, ConfigDict

from rayhier.scores.scorer import PairScorer
from rayhier.spec.cross_encoder import CrossEncoderSpec
from rayhier.spec.encoder import Precision
from rayhier.storage import files
from rayhier.storage.artifact import Artifact

SETTINGS = "settings.json"


class Settings(BaseModel):
    """Settings of a published cross-encoder."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    precision: Precision
    """Number format in which the cross-encoder computes."""

    @classmethod
    def read(cls, cross_encoder: Artifact) -> "Settings":
        """Read the settings of a published cross-encoder."""
        return cls.model_validate(files.read_json(cross_encoder.path(SETTINGS)))


def open_scorer(cross_encoder: Artifact, spec: CrossEncoderSpec) -> PairScorer:
    """Open a published cross-encoder in the number format that its settings name."""
    used = spec.model_copy(update={"precision": Settings.read(cross_encoder).precision})
    return PairScorer(cross_encoder.local("model"), used)
