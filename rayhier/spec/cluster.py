"""`cluster:` where and with how much it runs. Never part of a fingerprint."""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from rayhier.spec.section import Section


class CpuWorkers(Section):
    """Processes that need no GPU."""

    workers: Annotated[int, Field(ge=1, le=10_000)] = 2
    """Processes."""
    cpus: Annotated[int, Field(ge=1, le=1_000)] = 1
    """CPUs, and threads, of each."""


class Workers(CpuWorkers):
    """Processes of a stage and what each has."""

    gpus: Annotated[float, Field(ge=0, le=64)] = 0
    """GPUs of each; below 1, so many share one."""

    @field_validator("gpus")
    @classmethod
    def _whole(cls, value: float) -> float:
        if value > 1 and value != int(value):
            raise ValueError("at most 1, or a whole number: only one GPU can be shared")
        return value


class TrainWorkers(Section):
    """Processes that share each training batch and what each has."""

    workers: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Processes. The batch and the result are the same whatever their number."""
    least_workers: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Elastic: begin, and after a failure go on, with any number from this to `workers` that the cluster can give."""
    cpus: Annotated[int, Field(ge=1, le=1_000)] = 1
    """CPUs, and threads, of each. More help only where batches are large."""
    gpus: Annotated[int, Field(ge=0, le=1)] = 0
    """GPUs of each."""
    checkpoint_seconds: Annotated[float, Field(ge=0, le=86_400)] = 10.0
    """Least time between two checkpoints, which come at ends of epochs; Ray Train takes about 2 s for each."""

    @model_validator(mode="after")
    def _least_is_least(self) -> Self:
        if self.least_workers is not None and self.least_workers > self.workers:
            raise ValueError(f"least_workers of at most workers ({self.workers})")
        return self


class ClusterSpec(Section):
    """Resources a stage asks of Ray."""

    address: Annotated[str, Field(min_length=1)] = "auto"
    """`auto`: $RAY_ADDRESS, else a running cluster, else a new local one."""
    corpus: Workers = Workers()
    """Reading and checking the source."""
    embed: Workers = Workers()
    """Encoding."""
    tokenise: CpuWorkers | None = None
    """Making tokens beside `embed`, and beside `index` where a transformer was trained, so that GPUs need not wait for
    them; `null`: each encoder makes its own, in a thread."""
    train: TrainWorkers = TrainWorkers()
    """Training."""
    index: Workers = Workers()
    """Routing and writing the leaf map."""
    evaluate: Workers = Workers()
    """Measuring: each holds a share of the documents. Whole-index baselines have one process more, with its CPUs."""
