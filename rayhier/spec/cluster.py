"""`cluster:` where and with how much it runs. Never part of a fingerprint."""

from typing import Annotated

from pydantic import Field

from rayhier.spec.section import Section


class Workers(Section):
    """Processes of a stage and the CPUs of each."""

    workers: Annotated[int, Field(ge=1, le=10_000)] = 2
    """Processes."""
    cpus: Annotated[int, Field(ge=1, le=1_000)] = 1
    """CPUs, and threads, of each."""


class OneWorker(Section):
    """The train stage: one process in this version."""

    workers: Annotated[int, Field(ge=1, le=1)] = 1
    """Processes."""
    cpus: Annotated[int, Field(ge=1, le=1_000)] = 1
    """CPUs, and threads, of each. More help only where batches are large."""
    checkpoint_seconds: Annotated[float, Field(ge=0, le=86_400)] = 10.0
    """Least time between two checkpoints, which come at ends of epochs; Ray Train takes about 2 s for each."""


class ClusterSpec(Section):
    """Resources a stage asks of Ray."""

    address: Annotated[str, Field(min_length=1)] = "auto"
    """`auto`: $RAY_ADDRESS, else a running cluster, else a new local one."""
    corpus: Workers = Workers()
    """Reading and checking the source."""
    embed: Workers = Workers()
    """Encoding."""
    train: OneWorker = OneWorker()
    """Training."""
    index: Workers = Workers()
    """Routing and writing the leaf map."""
