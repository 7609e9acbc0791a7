"""`track:` trackers that a run reports its measures to. No result and no fingerprint depends on trackers."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from rayhier.spec.base import Section

SQLITE = "sqlite:///"


class MlflowTracker(Section):
    """MLflow: an experiment named as the job, with a run for each training and each evaluation."""

    type: Literal["mlflow"]
    uri: Annotated[str, Field(pattern=r"^(sqlite:///.+|https?://.+)$")]
    """Place of MLflow's runs: a server's address, or sqlite:///FILE if all processes are on one machine. The address
    has no password. A server's name and password are in $MLFLOW_TRACKING_USERNAME and $MLFLOW_TRACKING_PASSWORD."""

    @field_validator("uri")
    @classmethod
    def _no_password(cls, value: str) -> str:
        if "@" in urlsplit(value).netloc:
            raise ValueError("an address without a password, which goes in $MLFLOW_TRACKING_PASSWORD")
        return value

    @property
    def file(self) -> str | None:
        return self.uri.removeprefix(SQLITE) if self.uri.startswith(SQLITE) else None


class WandbTracker(Section):
    """Weights & Biases: a project named as the job, with a run for each training and each evaluation.

    The key is in $WANDB_API_KEY. $WANDB_MODE=offline writes runs to `wandb/` in $WANDB_DIR and sends nothing.
    """

    type: Literal["wandb"]


TrackSpec = Annotated[MlflowTracker | WandbTracker, Field(discriminator="type")]
