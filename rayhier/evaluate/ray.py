"""The evaluate stage on Ray: actors hold the parts of the corpus, the driver routes queries, merges and judges."""

import itertools
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import ray

from rayhier.evaluate.evaluation import evaluate
from rayhier.evaluate.parts import Holder, Make
from rayhier.evaluate.report import write
from rayhier.spec import JobSpec
from rayhier.spec.cluster import Workers
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Made


def build(
    spec: JobSpec,
    corpus: Artifact,
    vectors: Artifact,
    trained: Mapping[int, tuple[Artifact, Artifact]],
    attempt: Attempt,
) -> Made:
    """The evaluate stage: measure every seed's (model, index) and write the report below the attempt."""
    with Actors(spec.cluster.evaluate) as actors:
        report = write(spec, evaluate(spec, corpus, vectors, trained, actors), attempt.root)
    return Made({"documents": report["documents"], "queries": report["queries"], "seeds": report["seeds"]})


class Actors:
    """A `parts.Workshop` whose processes are actors, started once and used for all that follows."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers.workers
        self._cpus = workers.cpus
        self._kind = ray.remote(Holder)
        self._pool = [self._kind.options(num_cpus=workers.cpus).remote(workers.cpus) for _ in range(self.workers)]
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self._pool:
            ray.kill(actor)

    def start(self, make: Make, arguments: Sequence[tuple[Any, ...]]) -> "ActorParts":
        """One object in each of the first actors."""
        parts = ActorParts(self._pool[: len(arguments)], next(self._numbers))
        parts.make(make, arguments)
        return parts

    def alone(self, make: Make, *arguments: Any) -> "ActorParts":
        """One object in an actor of its own, which ends with it.

        It asks for no CPU: the pool is idle while it works, and a small cluster has none to spare.
        """
        actor = self._kind.options(num_cpus=0).remote(self._cpus)
        parts = ActorParts([actor], next(self._numbers), own=True)
        parts.make(make, [arguments])
        return parts


class ActorParts:
    """Objects of one number, one in each of some actors."""

    def __init__(self, actors: Sequence[Any], number: int, *, own: bool = False) -> None:
        self.actors, self.number, self.own = list(actors), number, own

    def make(self, make: Make, arguments: Sequence[tuple[Any, ...]]) -> None:
        """Make the objects."""
        ray.get([actor.make.remote(self.number, make, own) for actor, own in zip(self.actors, arguments, strict=True)])

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """All at once."""
        return self.each(method, [arguments] * len(self.actors))

    def each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """All at once, each with its own arguments."""
        called = [
            actor.call.remote(self.number, method, *own) for actor, own in zip(self.actors, arguments, strict=True)
        ]
        answers: list[Any] = ray.get(called)
        return answers

    def send(self, value: Any) -> Any:
        """A reference that actors read from the object store."""
        return ray.put(value)

    def close(self) -> None:
        """Let go of the objects, and of actors that hold nothing else."""
        for actor in self.actors:
            if self.own:
                ray.kill(actor)
            else:
                ray.get(actor.drop.remote(self.number))
