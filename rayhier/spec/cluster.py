"""`cluster:` the Ray cluster and the workers of each stage. No result and no fingerprint depends on this section."""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from rayhier.spec.base import Section


class Workers(Section):
    """Number of workers of a stage, and the CPUs and GPUs of each. Workers are processes on Ray, else threads."""

    workers: Annotated[int, Field(ge=1, le=10_000)] = 2
    """Number of processes."""
    cpus: Annotated[int, Field(ge=1, le=1_000)] = 1
    """CPUs that each process reserves, and number of its threads."""
    gpus: Annotated[float, Field(ge=0, le=64)] = 0
    """GPUs that each process reserves. With 0.25, four processes share a GPU."""

    @field_validator("gpus")
    @classmethod
    def _whole(cls, value: float) -> float:
        if value > 1 and value != int(value):
            raise ValueError("at most 1, or a whole number: only one GPU can be shared")
        return value


class TrainWorkers(Section):
    """Number of processes that share each training batch, the CPUs and GPUs of each, and time between checkpoints."""

    workers: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of processes. Batch size and result do not depend on this number."""
    least_workers: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Elastic training: least number of processes with which training starts, or continues after a failure. `null`:
    always `workers` processes."""
    cpus: Annotated[int, Field(ge=1, le=1_000)] = 1
    """CPUs that each process reserves, and number of its threads. More than 1 helps only if batches are large."""
    gpus: Annotated[int, Field(ge=0, le=1)] = 0
    """GPUs that each process reserves."""
    micro_batch: Annotated[int, Field(ge=1)] | None = None
    """Largest number of texts whose activations a process keeps in memory. Smaller numbers let large batches fit a GPU,
    but encode each text twice. Gradients stay the same. `null`: the process's whole share of a batch."""
    checkpoint_seconds: Annotated[float, Field(ge=0, le=86_400)] = 10.0
    """Least seconds between two checkpoints. Checkpoints are written at ends of epochs."""

    @model_validator(mode="after")
    def _least_is_least(self) -> Self:
        if self.least_workers is not None and self.least_workers > self.workers:
            raise ValueError(f"least_workers of at most workers ({self.workers})")
        return self


class ClusterSpec(Section):
    """Address of the Ray cluster, and number and resources of the processes that each stage starts there."""

    address: Annotated[str, Field(min_length=1)] = "auto"
    """Address of Ray. `local`: a new cluster on this machine. `HOST:PORT`: the cluster there. `auto`: $RAY_ADDRESS or a
    running cluster. If there is none, Ray starts only for jobs that gain from it. A small job runs in one process, and
    numbers of workers are upper limits."""
    corpus: Workers = Workers()
    """Processes of stage corpus, which read and check the source."""
    embed: Workers = Workers()
    """Processes that encode documents and queries, and that score pairs by the cross-encoder ahead of searches. If
    several processes share a GPU, some processes read and write while another process encodes."""
    train: TrainWorkers = TrainWorkers()
    """Processes that train the encoder, the router and the cross-encoder."""
    index: Workers = Workers()
    """Processes that route documents to leaves and write the leaf map."""
    evaluate: Workers = Workers()
    """Workers of stages test, calibrate and evaluate. Stage evaluate is one process with the CPUs of all workers.
    Stages test and calibrate have the CPUs of one worker."""
