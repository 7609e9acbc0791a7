"""Do the work of stages in this process (`here.py`) or on Ray (`ray.py`). Equal workers give equal results."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rayhier.spec.cluster import TrainWorkers, Workers

T = TypeVar("T")
Row = dict[str, Any]
CPU = "CPU"


class Actor(Protocol):
    """An object that does items of a stage's work, one after another. Two threads never use one actor at a time."""

    def __call__(self, item: Row, /) -> Iterator[Row]:
        """Do one item of work. Yields the work done so far, for a progress bar."""
        ...


@dataclass(frozen=True)
class Pool:
    """Settings of `workers` equal actors, each made by `actor(**arguments)`."""

    actor: Callable[..., Actor]
    arguments: Row
    workers: Workers


class Executor(Protocol):
    def device(self, workers: Workers | TrainWorkers) -> str:
        """Return the name of the GPU that `workers` compute on, or else "CPU"."""
        ...

    def stream(self, items: Sequence[Row], pool: Pool) -> Iterator[Row]:
        """Yield what a pool's actors yield for items. InputError if an actor raises InputError or a disk is full."""
        ...

    def call(self, function: Callable[..., T], workers: Workers | TrainWorkers, *arguments: Any) -> T:
        """Return `function(*arguments)`, computed with the CPUs and GPUs of one of `workers`."""
        ...

    def train(
        self,
        worker: Callable[[Row], None],
        config: Row,
        workers: TrainWorkers,
        report: Callable[[Row], None],
    ) -> None:
        """Run `worker(config)` in a group of training workers, again from the last checkpoint if a worker dies.

        `config` gets a function, also called `report`, that passes a worker's row on to the argument `report`.
        """
        ...
