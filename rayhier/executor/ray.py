"""Do the work of stages on a Ray cluster. Actors are processes of Ray Data, training workers those of Ray Train."""

import contextlib
import importlib
import logging
import operator
import os
import queue
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rayhier.executor import CPU, Pool, Row
from rayhier.executor.cluster import ADDRESS, check_answers, noted
from rayhier.progress import say
from rayhier.spec import InputError, JobSpec, no_room
from rayhier.spec.cluster import TrainWorkers, Workers

T = TypeVar("T")
CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable by which Ray listens for other machines ("1") or on loopback alone ("0")."""
LOOK_SECONDS, SILENT_LOOKS = 5.0, 4
"""Seconds between two checks of the cluster, and number of checks without an answer after which the cluster is gone."""
MISTAKE = 2
MAX_FAILURES = 3
"""Number of times that training goes on from its checkpoint after a worker died."""
ERROR = "error"
RESERVED = ("corpus", "embed", "train", "index", "evaluate")
"""Sections of `cluster` that reserve resources. Each other stage runs on the workers of one of these sections."""
PARTS = 4
"""Decimals to which sums of resources are rounded, as Ray does: 100 x 0.07 GPUs are 7, not 7.000000000000001."""


def join(spec: JobSpec) -> None:
    """Connect this process to the spec's Ray cluster. With `auto`, use a running cluster, or else start Ray here.

    InputError if no cluster answers at the address, or Ray cannot start.
    """
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    key, address = "cluster.address", None if spec.cluster.address == "auto" else spec.cluster.address
    if address is None and (address := os.environ.get(ADDRESS) or None) is not None:
        key = ADDRESS
    check_answers(address or "", key)
    if address is None and not noted():
        address = "local"
    printer: Any = importlib.import_module("ray._private.worker")
    printer.print_to_stdstream = _say_of_ray
    try:
        with _no_stderr(), _on_loopback() if address == "local" else contextlib.nullcontext():
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        if address in ("local", None):
            raise InputError(
                f"cluster.address: Ray did not start on this machine ({reason}). Is it busy, or memory or /tmp full? "
                "Run the command again. `ray stop` ends what a stopped run left"
            ) from None
        raise InputError(f"{key}: got {address!r}, but no cluster answers there: {reason}") from None


@contextlib.contextmanager
def watched(spec: JobSpec) -> Iterator[None]:
    """End this process with a message, unlike Ray, if the process's cluster goes away in the block."""
    address, ended = ray.get_runtime_context().gcs_address, threading.Event()
    named = spec.cluster.address == "auto" and os.environ.get(ADDRESS)
    key = ADDRESS if named else "cluster.address"

    def answers() -> bool:
        try:
            check_answers(address, key)
        except InputError:
            return False
        return True

    def look() -> None:
        silent = 0
        while not ended.wait(LOOK_SECONDS):
            silent = 0 if answers() else silent + 1
            if silent == SILENT_LOOKS:
                say(f"error: {key}: the cluster at {address} went away. Finished work is kept: run the command again")
                os._exit(MISTAKE)

    if answers():  # an address that this process cannot reach says nothing
        threading.Thread(target=look, name="watch", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _say_of_ray(data: dict[str, Any], ignore_prefix: bool) -> None:  # noqa: ARG001  Ray's own signature
    """Say the first sentence of a message of Ray, and log the rest. Ray would print all of it after the summary."""
    for line in data["lines"]:
        first, _, rest = line.strip().partition("\n")[0].partition(". ")
        rest = rest or line.strip().partition("\n")[2]
        say(f"  Ray: {first}" + (" (more with -v, and in Ray's logs)" if rest else ""))
        logging.getLogger(__name__).info(line)


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Hide standard error while Ray starts. Ray prints its log level there, and raises real errors as exceptions."""
    sys.stderr.flush()
    stderr_copy, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
        os.close(nowhere)


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Let a cluster that Ray starts in the block listen on loopback alone, because all of it runs on this machine."""
    # Ray reads the variable at its import, so the constant is set too.
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before, exported = constants.ENABLE_RAY_CLUSTER, os.environ.get(CLUSTERS)
    os.environ[CLUSTERS], constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        del os.environ[CLUSTERS]
        if exported is not None:
            os.environ[CLUSTERS] = exported


def check_resources(spec: JobSpec) -> None:
    """Check that the cluster has each stage's CPUs and GPUs. InputError if not, because Ray would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for stage in RESERVED:
        workers: Workers | TrainWorkers = getattr(spec.cluster, stage)
        if stage == "evaluate":  # one process has the CPUs of all workers
            cpus = min(workers.workers * workers.cpus, int(max(node.get("CPU", 0) for node in nodes)))
            workers = workers.model_copy(update={"workers": 1, "cpus": max(cpus, workers.cpus)})
        least = workers.least_workers if isinstance(workers, TrainWorkers) else None
        for kind, each in (("CPU", workers.cpus), ("GPU", workers.gpus)):
            if each:
                _check(f"cluster.{stage}", least or workers.workers, each, kind, [node.get(kind, 0) for node in nodes])


def _check(key: str, workers: int, each: float, kind: str, nodes: Sequence[float]) -> None:
    """Check that `workers` processes with `each` of a resource fit the machines `nodes`. InputError if not."""
    has, largest = sum(nodes), max(nodes, default=0)
    total = round(workers * each, PARTS)
    where = f"{key}: got {workers} workers x {each:g} {kind}s = {total:g}"
    if total > has:
        raise InputError(f"{where}; allowed: at most the cluster's {has:g} {kind}s")
    if each > largest:
        raise InputError(f"{where}; allowed: at most {largest:g} {kind}s per worker, as on the largest node")
    if workers > (fit := sum(int(round(node / each, PARTS)) for node in nodes)):
        shown = [float(f"{node:g}") for node in nodes]
        raise InputError(f"{where}; allowed: at most {fit} workers of this size, because nodes have {shown} {kind}s")


def check_gpus(spec: JobSpec) -> str:
    """Return the name of the GPUs that stages reserve. InputError if torch sees none in a process with a GPU."""
    asked = {stage: gpus for stage in RESERVED if (gpus := getattr(spec.cluster, stage).gpus)}
    if not asked:
        return CPU
    stage, gpus = min(asked.items(), key=operator.itemgetter(1))
    look, names = ray.remote(num_cpus=0, num_gpus=gpus)(_gpu), dict[str, str | None]()
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("GPU", 0) >= gpus:
            there = look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
            (names[node["NodeManagerAddress"]],) = get([there.remote()])
    for address, name in names.items():
        if name is None:
            raise InputError(
                f"cluster.{stage}.gpus: got {gpus:g}, but torch sees no CUDA device on "
                f"node {address}; allowed: 0, or a machine with NVIDIA's driver and rayhier[gpu]"
            )
    return ", ".join(sorted({*filter(None, names.values())}))


def _gpu() -> str | None:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def get(results: Sequence[Any]) -> list[Any]:
    try:
        values: list[Any] = ray.get(list(results))
    except RayTaskError as error:
        if isinstance(error.cause, InputError):
            raise InputError(str(error.cause)) from None
        raise
    return values


class RayExecutor:
    def __init__(self, gpu: str = CPU) -> None:
        self._gpu = gpu

    def device(self, workers: Workers | TrainWorkers) -> str:
        return self._gpu if workers.gpus else CPU

    def stream(self, items: Sequence[Row], pool: Pool) -> Iterator[Row]:
        if not items:
            return
        import ray.data

        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        rows = ray.data.from_items(list(items), override_num_blocks=len(items))
        rows = rows.flat_map(
            _reporting(pool.actor),
            fn_constructor_kwargs=pool.arguments,
            compute=ray.data.ActorPoolStrategy(size=min(pool.workers.workers, len(items))),
            num_cpus=min(pool.workers.cpus, _largest()),
            num_gpus=pool.workers.gpus or None,
        )
        yield from map(_told, rows.iter_rows())

    def call(self, function: Callable[..., T], workers: Workers | TrainWorkers, *arguments: Any) -> T:
        result: T
        remote = ray.remote(num_cpus=workers.cpus, num_gpus=workers.gpus or None)(function)
        (result,) = get([remote.remote(*arguments)])
        return result

    def train(
        self, worker: Callable[[Row], None], config: Row, workers: TrainWorkers, report: Callable[[Row], None]
    ) -> None:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer
        from ray.util.queue import Queue

        least = workers.least_workers
        scaling = ScalingConfig(
            num_workers=workers.workers if least is None else (least, workers.workers),
            use_gpu=workers.gpus > 0,
            resources_per_worker={"CPU": workers.cpus, **({"GPU": workers.gpus} if workers.gpus else {})},
        )
        rows = Queue(actor_options={"num_cpus": 0})
        with tempfile.TemporaryDirectory() as nothing:  # workers keep their own checkpoints
            failures = FailureConfig(max_failures=MAX_FAILURES)
            trainer = TorchTrainer(
                worker,
                train_loop_config={**config, "report": rows.put_nowait},
                scaling_config=scaling,
                run_config=RunConfig(storage_path=nothing, failure_config=failures),
            )
            try:
                _fit(trainer, rows, report)
            finally:
                rows.shutdown()


def _largest() -> float:
    return float(max(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]))


def _fit(trainer: Any, rows: Any, report: Callable[[Row], None]) -> None:
    """Train in a thread, and report rows in the main thread. In the main thread, Ray would handle Ctrl-C itself."""
    failed: list[BaseException] = []

    def fit() -> None:
        try:
            trainer.fit()
        except BaseException as error:  # noqa: BLE001  raised again below
            failed.append(error)

    thread = threading.Thread(target=fit, name="train", daemon=True)
    thread.start()
    while thread.is_alive():
        try:
            report(rows.get(timeout=0.5))
        except queue.Empty:
            continue
    if failed:
        raise failed[0]


def _reporting(actor: Any) -> type:
    """Make a subclass of the actor that returns InputErrors as rows, because Ray would hide them in a stack trace."""

    class Reporter(actor):  # type: ignore[misc]
        def __call__(self, item: Row) -> Iterator[Row]:
            try:
                for row in super().__call__(item):
                    yield {ERROR: "", **row}
            except InputError as error:
                yield {ERROR: str(error)}
            except OSError as error:
                if (message := no_room(error)) is None:
                    raise
                yield {ERROR: message}

    Reporter.__name__ = Reporter.__qualname__ = actor.__name__
    return Reporter


def _told(row: Row) -> Row:
    if row[ERROR]:
        raise InputError(row[ERROR])
    return row
