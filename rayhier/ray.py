"""Join a Ray cluster, check that it has the resources a spec needs, and stream items through a pool of actors."""

import contextlib
import importlib
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ray
import ray.data
from ray.exceptions import RayTaskError

from rayhier.progress import say
from rayhier.spec import InputError, JobSpec, no_room
from rayhier.spec.cluster import TrainWorkers, Workers

T = TypeVar("T")
CONNECT_SECONDS = 10.0
CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable by which Ray listens for other machines ("1") or on loopback alone ("0")."""
ERROR = "error"
PARTS = 4
"""Decimals to which sums of resources are rounded, as Ray does: 100 x 0.07 GPUs are 7, not 7.000000000000001."""


def join(spec: JobSpec) -> None:
    """Connect this process to the Ray cluster that the spec names, or with `auto` to one that runs, or start Ray here.

    Does nothing where the process is connected already.

    InputError if no cluster answers at the address, or Ray cannot start on this machine.
    """
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    address = None if spec.cluster.address == "auto" else spec.cluster.address
    address = address or os.environ.get("RAY_ADDRESS") or None
    _check_answers(address or "")
    if address is None and not _is_running():
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
                f"cluster.address: Ray did not start on this machine ({reason}); is it busy, memory or /tmp full? "
                "Run again; `ray stop` ends what a killed run left"
            ) from None
        raise InputError(f"cluster.address: got {address!r}; no cluster answers there: {reason}") from None


def _say_of_ray(data: dict[str, Any], ignore_prefix: bool) -> None:  # noqa: ARG001  Ray's own signature
    """Say the first sentence of what Ray reports to drivers, such as the death of a worker. The rest is for the log.

    Ray would print the whole paragraph on standard output, after the summary. Its logs on the node have all of it.
    """
    for line in data["lines"]:
        first, _, rest = line.strip().partition("\n")[0].partition(". ")
        rest = rest or line.strip().partition("\n")[2]
        say(f"  Ray: {first}" + (" (more with -v, and in Ray's logs)" if rest else ""))
        logging.getLogger(__name__).info(line)


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Hide standard error while Ray starts: it prints its log level there, and raises real errors as exceptions."""
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
    """Let a cluster that Ray starts in the block listen on loopback alone: all of it runs on this machine.

    Ray does so where clusters are switched off, as they are by default on macOS and Windows. It reads the variable when
    it is imported, so that the constant is set too.
    """
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


def _is_running() -> bool:
    """Return True if a cluster that `ray start` noted on this machine still answers; Ray waits for one that is gone."""
    try:
        noted = Path(tempfile.gettempdir(), "ray", "ray_current_cluster").read_text().strip()
        _check_answers(noted)
    except (OSError, InputError):
        return False
    return bool(noted)


def _check_answers(address: str) -> None:
    """Raise InputError if nothing listens at HOST:PORT. Without this test Ray would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cluster.address: got {address!r}; nothing answers there ({error}); "
            "allowed: auto, local, or HOST:PORT of a running cluster"
        ) from None


def check_resources(spec: JobSpec) -> None:
    """Raise InputError if a stage needs more CPUs or GPUs than the cluster has: Ray would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for stage in ("corpus", "embed", "train", "index", "evaluate", *(["scores"] if spec.scores else [])):
        workers: Workers | TrainWorkers = getattr(spec.cluster, stage)
        least = workers.least_workers if isinstance(workers, TrainWorkers) else None
        for kind, each in (("CPU", workers.cpus), ("GPU", workers.gpus)):
            if each:
                _check(f"cluster.{stage}", least or workers.workers, each, kind, [node.get(kind, 0) for node in nodes])
    _check_tokenise(spec, [node.get("CPU", 0) for node in nodes])


def check_cpus(key: str, workers: int) -> None:
    """Raise InputError if the cluster has no CPU for each of so many processes. `key` names their number."""
    _check(key, workers, 1, "CPU", [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]])


def _check_tokenise(spec: JobSpec, nodes: Sequence[float]) -> None:
    """InputError if tokenising and encoding together need more CPUs than there are: they would wait for ever."""
    if (tokenise := spec.cluster.tokenise) is None:
        return
    _check("cluster.tokenise", tokenise.workers, tokenise.cpus, "CPU", nodes)
    has = sum(nodes)
    for stage in spec.encoding:
        encoding = getattr(spec.cluster, stage)
        cpus = tokenise.workers * tokenise.cpus + encoding.workers * encoding.cpus
        if cpus > has:
            where = f"cluster.tokenise: got {tokenise.workers} workers x {tokenise.cpus} CPUs beside cluster.{stage}"
            raise InputError(f"{where}, together {cpus:g}; allowed: at most the cluster's {has:g} CPUs")


def _check(key: str, workers: int, each: float, kind: str, nodes: Sequence[float]) -> None:
    """InputError if `workers` processes with `each` of a resource do not fit these nodes."""
    has, largest = sum(nodes), max(nodes, default=0)
    total = round(workers * each, PARTS)
    where = f"{key}: got {workers} workers x {each:g} {kind}s = {total:g}"
    if total > has:
        raise InputError(f"{where}; allowed: at most the cluster's {has:g} {kind}s")
    if each > largest:
        raise InputError(f"{where}; allowed: at most {largest:g} {kind}s a worker, as the largest node has")
    if workers > (fit := sum(int(round(node / each, PARTS)) for node in nodes)):
        shown = [float(f"{node:g}") for node in nodes]
        raise InputError(f"{where}; allowed: at most {fit} workers of that size, as nodes have {shown} {kind}s")


def call(function: Callable[..., T], cpus: int, *arguments: Any, gpus: float = 0) -> T:
    """Run `function(*arguments)` in a cluster process with `cpus` CPUs. Returns its result, raises its InputError."""
    result: T
    (result,) = get([ray.remote(num_cpus=cpus, num_gpus=gpus or None)(function).remote(*arguments)])
    return result


def get(results: Sequence[Any]) -> list[Any]:
    """Wait for the results of calls. An InputError that a call raises is raised again here."""
    try:
        values: list[Any] = ray.get(list(results))
    except RayTaskError as error:
        if isinstance(error.cause, InputError):
            raise InputError(str(error.cause)) from None
        raise
    return values


@dataclass(frozen=True)
class Pool:
    """Settings of a pool of `workers` equal Ray actors, each made by `actor(**arguments)`."""

    actor: type
    arguments: dict[str, Any]
    workers: Workers


def stream(
    items: Sequence[dict[str, Any]],
    actor: type,
    arguments: dict[str, Any],
    workers: Workers,
    ahead: Pool | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the results of `actor(**arguments)(item)` for all items as they arrive, from a pool of `workers` actors.

    With a pool `ahead`, an actor of that pool processes each item first and its result goes on to an actor of this
    pool. Both pools work at the same time. Raises InputError if an actor raises InputError or has no room to write.
    """
    if not items:
        return
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    rows = ray.data.from_items(list(items), override_num_blocks=len(items))
    for pool in (ahead, Pool(actor, arguments, workers)):
        if pool is not None:
            rows = rows.map(
                _reporting(pool.actor),
                fn_constructor_kwargs=pool.arguments,
                compute=ray.data.ActorPoolStrategy(size=min(pool.workers.workers, len(items))),
                num_cpus=pool.workers.cpus,
                num_gpus=getattr(pool.workers, "gpus", 0) or None,
            )
    yield from map(_told, rows.iter_rows())


def _reporting(actor: type) -> type:
    """A subclass of the actor that returns InputErrors as rows: Ray would hide them in a stack trace of its own."""

    class Reporter(actor):  # type: ignore[misc]
        def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
            if item.get(ERROR):  # the pool `ahead` failed on this item
                return {ERROR: item[ERROR]}
            try:
                return {ERROR: "", **super().__call__(item)}
            except InputError as error:
                return {ERROR: str(error)}
            except OSError as error:
                if (message := no_room(error)) is None:
                    raise
                return {ERROR: message}

    Reporter.__name__ = Reporter.__qualname__ = actor.__name__
    return Reporter


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row that an actor returned. InputError if the row reports an error."""
    if row[ERROR]:
        raise InputError(row[ERROR])
    return row
