"""A run in this process: its stages as they are, and beneath them plain calls where Ray would start actors.

For tests of what is made, not of who makes it: a process that Ray starts imports for seconds, and a training starts
six. Whatever an actor would get is pickled all the same. On Ray itself: test_run.py every stage, test_train.py and
test_kill.py training, test_chaos.py an index, test_s3_run.py a bucket, test_job.py a job.
"""

import contextlib
import functools
import importlib
import queue
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

from rayhier.spec.cluster import Workers

STAGES = ("corpus", "embed", "train", "scores", "index", "evaluate")
T = TypeVar("T")


def make(spec: Path, *stages: str) -> None:
    """Run these stages of a spec in this process."""
    from rayhier import run

    with pytest.MonkeyPatch.context() as patch, threads_as_before():
        in_this_process(patch)
        assert run.main([str(spec), *(part for stage in stages for part in ("--stage", stage))]) == 0


def in_this_process(patch: pytest.MonkeyPatch, *stages: str) -> None:
    """Until `patch` is undone, let these stages, or all, do in this process what they give to Ray."""
    from rayhier.executor.holders import Holders

    patch.setenv("RAYON_NUM_THREADS", "1")
    for stage in stages or STAGES:
        module = importlib.import_module(f"rayhier.{stage}.ray")
        match stage:
            case "train":
                _train_here(module, patch)
            case "evaluate":
                patch.setattr(module, "actors", lambda own: contextlib.nullcontext(Holders.here(own.workers)))
            case _:
                patch.setattr(module, "stream", stream_here)
        if hasattr(module, "call"):
            patch.setattr(module, "call", lambda function, _, *given, gpus=0: function(*_copied(given)))


@contextlib.contextmanager
def threads_as_before() -> Iterator[None]:
    """Actors choose their number of threads for a whole process."""
    import faiss
    import torch

    before = torch.get_num_threads(), faiss.omp_get_max_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        faiss.omp_set_num_threads(before[1])


def stream_here(
    items: Sequence[dict[str, Any]], actor: type, arguments: dict[str, Any], _: Workers, ahead: Any = None
) -> Iterator[dict[str, Any]]:
    """`rayhier.executor.ray.stream` by one actor in this process, which gets copies and reports its errors as others do."""
    from rayhier.executor import ray as adapter

    pools = [*([(ahead.actor, ahead.arguments)] if ahead else []), (actor, arguments)]
    actors = [adapter._reporting(kind)(**own) for kind, own in _copied(pools)] if items else []
    for item in _copied(list(items)):
        yield adapter._told(functools.reduce(lambda row, one: one(row), actors, item))


def _copied(value: T) -> T:
    """What another process would get."""
    from ray import cloudpickle

    copy: T = cloudpickle.loads(cloudpickle.dumps(value))
    return copy


def _train_here(module: ModuleType, patch: pytest.MonkeyPatch) -> None:
    """One worker of `rayhier.train.stage`, in this process, which starts anew and reports to nobody."""
    import ray.train

    class Trainer:
        def __init__(self, worker: Callable[..., None], *, train_loop_config: dict[str, Any], **_: Any) -> None:
            progress = {"progress": train_loop_config.pop("progress")}
            self.fit = functools.partial(worker, _copied(train_loop_config) | progress)

    class Progress(queue.Queue):
        def __init__(self, **_: Any) -> None:
            super().__init__()

        def shutdown(self) -> None:
            pass

    patch.setattr(module, "TorchTrainer", Trainer)
    patch.setattr(module, "Queue", Progress)
    patch.setattr(module, "Empty", queue.Empty)
    patch.setattr(ray.train, "get_checkpoint", lambda: None)
    patch.setattr(ray.train, "report", lambda *_, **__: None)
