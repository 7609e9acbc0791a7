"""The evaluate stage on Ray: actors hold parts of the corpus; the driver process routes queries and merges results."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, Generic, Self, cast

import ray
import torch

from rayhier.cluster.library import faiss
from rayhier.embed.precision import as_embedded
from rayhier.evaluate import test_split
from rayhier.evaluate.calibrate import calibrate
from rayhier.evaluate.evaluation import evaluate
from rayhier.evaluate.output import write
from rayhier.evaluate.workers import Holder, P, R, T, V
from rayhier.progress import say
from rayhier.ray import call, get
from rayhier.search.fusion_weight import FusionWeight
from rayhier.spec import JobSpec
from rayhier.spec.cluster import Workers
from rayhier.storage import files
from rayhier.storage.artifact import Artifact
from rayhier.storage.attempt import Attempt, Output
from rayhier.storage.model_folder import ModelFolder
from rayhier.storage.paths import locate
from rayhier.track import tracked


def build(
    spec: JobSpec,
    corpus: Artifact,
    vectors: Artifact,
    models: Mapping[int, tuple[Artifact, Artifact]],
    attempt: Attempt,
    read: Mapping[tuple[str, int | None], Artifact] | None = None,
    test: Artifact | None = None,
) -> Output:
    """Measure each seed's (model, index) and write the report below the attempt, as one stage.

    `read` are the artifacts that re-ranking reads, by kind and seed (None: all seeds); `test` has the test split.
    """
    spec = as_embedded(spec, vectors, spec.cluster.evaluate.gpus)
    with Actors(spec.cluster.evaluate) as actors:
        report = write(spec, evaluate(spec, corpus, vectors, models, actors, read, test), attempt.root)
    with (
        files.filling(attempt.root / "tensorboard") as board,
        tracked(spec, "evaluate", attempt.place.folder.name, board) as sink,
    ):
        for name, row in report.systems.items():
            sink.log(name, {"visited": row.visited, **row.measures}, 0)
    return Output({"documents": report.documents, "queries": report.queries, "seeds": report.seeds})


def build_test(spec: JobSpec, model: ModelFolder, corpus: Artifact, vectors: Artifact, attempt: Attempt) -> Output:
    """Read the test split of the source and encode its queries in a process of the cluster."""
    queries, rows = test_split.read(spec, corpus)
    workers = spec.cluster.evaluate
    encoder = as_embedded(spec, vectors, workers.gpus).encoder
    texts = queries["text"].to_pylist()
    vector_QM = call(test_split.encode, workers.cpus, encoder, model.path, texts, workers.cpus, gpus=workers.gpus)
    return test_split.write(attempt.root, queries, vector_QM, rows)


def build_calibration(
    spec: JobSpec,
    corpus: Artifact,
    vectors: Artifact,
    model: Artifact,
    index: Artifact,
    attempt: Attempt,
    cross_encoder: Artifact | None = None,
) -> Output:
    """Calibrate a built index by queries that training never saw, in a process of the cluster.

    `cross_encoder` is given where the spec re-ranks.
    """
    workers = spec.cluster.evaluate
    spec = as_embedded(spec, vectors, workers.gpus)
    read = [] if cross_encoder is None else [cross_encoder]
    folders = [str(artifact.folder) for artifact in (corpus, vectors, model, index, *read)]
    arguments = spec.model_dump(mode="json"), folders, str(attempt.root)
    counts = call(_calibrate, workers.cpus, *arguments, gpus=workers.gpus)
    if "queries" in counts:
        say(f"  calibrate: {counts['queries']:,} dev queries, the exact best {counts['k']:,} of each")
    if "weight" in counts:
        weight = FusionWeight.read(attempt.root)
        by = weight is not None and weight.queries and f"chosen by {weight.chosen_by}"
        say(f"  calibrate: BM25's weight {counts['weight']:g}, {by or 'as usual without dev queries'}")
    if "beside" in counts:
        pays = "" if counts["read"] > counts["searched"] else "; re-ranking does not pay"
        say(
            f"  calibrate: the search's score counts {counts['beside']:g} times beside the cross-encoder's: by "
            f"{counts['reranked']:,} dev queries nDCG@10 {counts['searched']:.3f} -> {counts['read']:.3f}{pays}"
        )
    elif spec.chooses_beside:
        say("  calibrate: the search's score does not count beside the cross-encoder's: no dev queries choose a weight")
    return Output(counts)


def _calibrate(spec: dict[str, Any], folders: Sequence[str], root: str) -> dict[str, float]:
    job = JobSpec.model_validate(spec)
    torch.set_num_threads(job.cluster.evaluate.cpus)
    faiss.omp_set_num_threads(job.cluster.evaluate.cpus)
    corpus, vectors, model, index, *read = (Artifact.open(locate(folder)) for folder in folders)
    return calibrate(job, corpus, vectors, model, index, locate(root), *read)


class Actors:
    """Workers of an evaluation that are Ray actors; use as a context manager, which kills them at its end."""

    def __init__(self, workers: Workers) -> None:
        self.count = workers.workers
        self._cpus = workers.cpus
        self._kind = ray.remote(Holder)
        actor = self._kind.options(num_cpus=workers.cpus, num_gpus=workers.gpus or None)
        self._pool = [actor.remote(workers.cpus) for _ in range(self.count)]
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self._pool:
            ray.kill(actor)

    def start(self, make: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> "ActorParts[T]":
        """Make an object, `make(*tuple)`, in an actor for each tuple of arguments; at most `count` tuples."""
        number, actors = next(self._numbers), self._pool[: len(arguments)]
        get([actor.make.remote(number, make, values, {}) for actor, values in zip(actors, arguments, strict=True)])
        return ActorParts(actors, number)

    def alone(self, make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> "ActorParts[T]":
        """Make an object in a new actor, which is killed when the object is closed.

        The actor reserves no CPU: the pool is idle while it works, and a small cluster has no CPU to spare.
        """
        number, actor = next(self._numbers), self._kind.options(num_cpus=0).remote(self._cpus)
        get([actor.make.remote(number, make, arguments, named)])
        return ActorParts([actor], number, own=True)


class ActorParts(Generic[T]):
    """Objects of one kind, one in each of several actors, kept there under the same number."""

    def __init__(self, actors: Sequence[Any], number: int, *, own: bool = False) -> None:
        self.actors, self.number, self.own = list(actors), number, own

    def call(self, method: Callable[Concatenate[T, P], R], *arguments: P.args, **named: P.kwargs) -> list[R]:
        """Call a method of the object in each actor at the same time; returns the results, actor by actor."""
        return get([actor.call.remote(self.number, method, *arguments, **named) for actor in self.actors])

    def each(self, method: Callable[Concatenate[T, ...], R], arguments: Sequence[tuple[Any, ...]]) -> list[R]:
        """Call a method of all objects at the same time, each with its own tuple of arguments; returns the results."""
        calls = zip(self.actors, arguments, strict=True)
        return get([actor.call.remote(self.number, method, *values) for actor, values in calls])

    def send(self, value: V) -> V:
        """Put a value into Ray's object store; returns a reference, which actors take in place of the value."""
        return cast("V", ray.put(value))

    def close(self) -> None:
        """Drop the objects, and kill actors that were started only for them."""
        for actor in self.actors:
            if self.own:
                ray.kill(actor)
            else:
                ray.get(actor.drop.remote(self.number))
