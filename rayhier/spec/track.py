"""`track:` trackers that a run reports its measures to. Never part of a fingerprint: no result depends on it."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from rayhier.spec.base import Section

SQLITE = "sqlite:///"


class MlflowTracker(Section):
    """MLflow: an experiment named as the job, with a run for each training and each evaluation."""

    type: Literal["mlflow"]
    uri: Annotated[str, Field(pattern=r"^(sqlite:///.+|https?://.+)$")]
    """Where MLflow keeps runs: a server's address, or sqlite:///FILE where all processes are on one machine. A password
    is never here: name and password of a server are in $MLFLOW_TRACKING_USERNAME and $MLFLOW_TRACKING_PASSWORD."""

    @field_validator("uri")
    @classmethod
    def _no_password(cls, value: str) -> str:
        if "@" in urlsplit(value).netloc:
            raise ValueError("an address without a password, which goes in $MLFLOW_TRACKING_PASSWORD")
        return value

    @property
    def file(self) -> str | None:
        """The file of sqlite:///FILE. None for a server."""
        return self.uri.removeprefix(SQLITE) if self.uri.startswith(SQLITE) else None


class WandbTracker(Section):
    """Weights & Biases: a project named as the job, with a run for each training and each evaluation.

    The key is in $WANDB_API_KEY. $WANDB_MODE=offline writes runs to `wandb/` in $WANDB_DIR and sends nothing.
    """

    type: Literal["wandb"]


TrackSpec = Annotated[MlflowTracker | WandbTracker, Field(discriminator="type")]
