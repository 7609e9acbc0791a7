"""What every Ray adapter here shares: joining a cluster, and streaming shards through a pool of actors."""

import contextlib
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import ray.data

from rayhier.spec import InputError, JobSpec, no_room
from rayhier.spec.cluster import CpuWorkers, TrainWorkers, Workers

ANSWER_SECONDS = 10.0
ERROR = "error"
PARTS = 4
"""Decimals Ray counts resources in: a hundred times 0.07 GPUs are seven."""


def join(spec: JobSpec) -> None:
    """Connect to the cluster the spec names; once connected, stay."""
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    address = None if spec.cluster.address == "auto" else spec.cluster.address
    _check_answers(address or os.environ.get("RAY_ADDRESS", ""))
    if address is None and "RAY_ADDRESS" not in os.environ and _is_left_over():
        address = "local"
    try:
        with _no_stderr():
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"cluster.address: got {spec.cluster.address!r}; no cluster answers there: {error}") from None


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """While Ray's core starts it tells standard error which log level it was given; what matters it raises."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _is_left_over() -> bool:
    """Whether `ray start` noted a cluster on this machine that is gone: Ray itself would wait for it for minutes."""
    try:
        noted = Path(tempfile.gettempdir(), "ray", "ray_current_cluster").read_text().strip()
        _check_answers(noted)
    except OSError:
        return False
    except InputError:
        return True
    return False


def _check_answers(address: str) -> None:
    """InputError where nobody listens at HOST:PORT: Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cluster.address: got {address!r}; nobody answers there ({error}); "
            "allowed: auto, local, or HOST:PORT of a running cluster"
        ) from None


def check_resources(spec: JobSpec) -> None:
    """InputError where a stage asks for more than the cluster has, before it waits for it in vain."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    _check_device(spec)
    for stage in ("corpus", "embed", "train", "index", "evaluate"):
        workers: Workers | TrainWorkers = getattr(spec.cluster, stage)
        least = workers.least_workers if isinstance(workers, TrainWorkers) else None
        for kind, each in (("CPU", workers.cpus), ("GPU", workers.gpus)):
            if each:
                _check(f"cluster.{stage}", least or workers.workers, each, kind, [node.get(kind, 0) for node in nodes])
    _check_tokenise(spec, [node.get("CPU", 0) for node in nodes])


def _check_tokenise(spec: JobSpec, nodes: Sequence[float]) -> None:
    """Two pools that both wait for the other's CPUs would wait for ever."""
    if (own := spec.cluster.tokenise) is None:
        return
    _check("cluster.tokenise", own.workers, own.cpus, "CPU", nodes)
    has = sum(nodes)
    for stage in spec.encoding:
        other = getattr(spec.cluster, stage)
        asked = own.workers * own.cpus + other.workers * other.cpus
        if asked > has:
            where = f"cluster.tokenise: got {own.workers} workers x {own.cpus} CPUs beside cluster.{stage}"
            raise InputError(f"{where}, together {asked:g}; allowed: at most the cluster's {has:g} CPUs")


def _check_device(spec: JobSpec) -> None:
    """A process that Ray gives no GPU sees none."""
    for stage in [*spec.encoding, "train"] if spec.encoder.device == "cuda" else ():
        if not getattr(spec.cluster, stage).gpus:
            raise InputError(
                f"cluster.{stage}.gpus: got 0 with encoder.device cuda; allowed: above 0, or encoder.device auto or cpu"
            )


def _check(key: str, workers: int, each: float, kind: str, nodes: Sequence[float]) -> None:
    has, largest = sum(nodes), max(nodes, default=0)
    asked = round(workers * each, PARTS)
    where = f"{key}: got {workers} workers x {each:g} {kind}s = {asked:g}"
    if asked > has:
        raise InputError(f"{where}; allowed: at most the cluster's {has:g} {kind}s")
    if each > largest:
        raise InputError(f"{where}; allowed: at most {largest:g} {kind}s a worker, the largest node's")
    if workers > (fit := sum(int(round(node / each, PARTS)) for node in nodes)):
        shown = [float(f"{node:g}") for node in nodes]
        raise InputError(f"{where}; allowed: at most {fit} workers of that size, as nodes have {shown} {kind}s")


@dataclass(frozen=True)
class Pool:
    """Actors of one kind, `actor(**arguments)`."""

    actor: type
    arguments: dict[str, Any]
    workers: CpuWorkers


def stream(
    items: Sequence[dict[str, Any]],
    actor: type,
    arguments: dict[str, Any],
    workers: CpuWorkers,
    ahead: Pool | None = None,
) -> Iterator[dict[str, Any]]:
    """What `actor(**arguments)(item)` returns for each item, as it comes, from a pool of so many actors.

    Where there is a pool `ahead`, of what that makes of the item; both work at a time. InputError where one of them
    raises it, or finds no room to write.
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
                _telling(pool.actor),
                fn_constructor_kwargs=pool.arguments,
                compute=ray.data.ActorPoolStrategy(size=min(pool.workers.workers, len(items))),
                num_cpus=pool.workers.cpus,
                num_gpus=getattr(pool.workers, "gpus", 0) or None,
            )
    yield from map(_told, rows.iter_rows())


def _telling(actor: type) -> type:
    """The actor, whose mistakes of the user's come back as rows: Ray would bury them in a trace of its own."""

    class Telling(actor):  # type: ignore[misc]
        def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
            if item.get(ERROR):  # of the pool ahead
                return {ERROR: item[ERROR]}
            try:
                return {ERROR: "", **super().__call__(item)}
            except InputError as error:
                return {ERROR: str(error)}
            except OSError as error:
                if (said := no_room(error)) is None:
                    raise
                return {ERROR: said}

    Telling.__name__ = Telling.__qualname__ = actor.__name__
    return Telling


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """What an actor answered; InputError where that is a mistake."""
    if row[ERROR]:
        raise InputError(row[ERROR])
    return row
