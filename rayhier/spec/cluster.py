"""`cluster:` the Ray cluster and the resources of each stage. Never part of a fingerprint."""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from rayhier.spec.base import Section


class CpuWorkers(Section):
    """Number of processes and their CPUs, for work that needs no GPU."""

    workers: Annotated[int, Field(ge=1, le=10_000)] = 2
    """Number of processes."""
    cpus: Annotated[int, Field(ge=1, le=1_000)] = 1
    """CPUs, and threads, of each process."""


class GpuWorkers(CpuWorkers):
    """Number of a stage's processes and their CPUs and GPUs."""

    gpus: Annotated[float, Field(ge=0, le=64)] = 0
    """GPUs of each process; below 1, several processes share a GPU (0.25: four)."""

    @field_validator("gpus")
    @classmethod
    def _whole(cls, value: float) -> float:
        if value > 1 and value != int(value):
            raise ValueError("at most 1, or a whole number: only one GPU can be shared")
        return value


class TrainWorkers(Section):
    """Number of processes that share each training batch, their CPUs and GPUs, and their checkpoints."""

    workers: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of processes. Batch and result do not depend on it."""
    least_workers: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Elastic training: start, and continue after a failure, with any number of processes from this to `workers`."""
    cpus: Annotated[int, Field(ge=1, le=1_000)] = 1
    """CPUs, and threads, of each process. More than 1 helps only where batches are large."""
    gpus: Annotated[int, Field(ge=0, le=1)] = 0
    """GPUs of each process."""
    checkpoint_seconds: Annotated[float, Field(ge=0, le=86_400)] = 10.0
    """Least seconds between two checkpoints, written at ends of epochs; Ray Train takes about 2 s for each."""

    @model_validator(mode="after")
    def _least_is_least(self) -> Self:
        if self.least_workers is not None and self.least_workers > self.workers:
            raise ValueError(f"a least_workers of at most workers ({self.workers})")
        return self


class ClusterSpec(Section):
    """Address of the Ray cluster, and the processes that each stage starts there."""

    address: Annotated[str, Field(min_length=1)] = "auto"
    """Ray's address: `auto` ($RAY_ADDRESS, else a running cluster, else a new local one), `local`, or HOST:PORT."""
    corpus: GpuWorkers = GpuWorkers()
    """Processes that read and check the source."""
    embed: GpuWorkers = GpuWorkers()
    """Processes that encode documents and queries, and first write queries where `train.generated` has a model."""
    tokenise: CpuWorkers | None = None
    """Processes that tokenise texts for `embed`, and for `index` where a transformer was trained, so that GPUs do not
    wait for tokens; `null`: each encoding process tokenises in a thread of its own."""
    train: TrainWorkers = TrainWorkers()
    """Processes that train."""
    scores: GpuWorkers = GpuWorkers()
    """Processes that score pairs ahead with the cross-encoder, which itself trains on those of `train`."""
    index: GpuWorkers = GpuWorkers()
    """Processes that route documents to leaves and write the leaf map."""
    evaluate: GpuWorkers = GpuWorkers()
    """Processes that measure, each on a share of the documents. Whole-index baselines run in one more process."""
