"""Do the work of stages in this process, by threads. Most of the work releases Python's lock.

Numbers of workers and CPUs in a spec are upper limits here. If no core is left, no further thread is started.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rayhier.executor import CPU, Actor, Pool, Row
from rayhier.spec import InputError, JobSpec, no_room
from rayhier.spec.cluster import TrainWorkers, Workers
from rayhier.threads import cores, set_threads, threads

T = TypeVar("T")


class Here:
    def device(self, _: Workers | TrainWorkers) -> str:
        return CPU

    def stream(self, items: Sequence[Row], pool: Pool) -> Iterator[Row]:
        done = queue.SimpleQueue[Row | BaseException | None]()
        free, stops = queue.SimpleQueue[Actor](), threading.Event()
        count = min(_at_once(pool.workers), len(items))
        # All actors are made before the first thread starts, because transformers changes torch's default type in
        # between.
        for _ in range(count):
            free.put(pool.actor(**pool.arguments))

        def work(item: Row) -> None:
            actor = free.get()
            try:
                for row in actor(item):
                    if stops.is_set():
                        return
                    done.put(row)
            except BaseException as error:  # noqa: BLE001  raised again in the thread that iterates
                done.put(error)
            else:
                done.put(None)
            finally:
                free.put(actor)

        pool_of_threads = ThreadPoolExecutor(max(1, count), "stage", set_threads, (pool.workers.cpus,))
        with threads(pool.workers.cpus), pool_of_threads as stage:
            futures, left = [stage.submit(work, item) for item in items], len(items)
            try:
                while left:
                    row = done.get()
                    if isinstance(row, OSError) and (message := no_room(row)) is not None:
                        raise InputError(message) from None
                    if isinstance(row, BaseException):
                        raise row
                    if row is None:
                        left -= 1
                    else:
                        yield row
            finally:  # after an error or Ctrl-C, threads end at their next row
                stops.set()
                for future in futures:
                    future.cancel()

    def call(self, function: Callable[..., T], workers: Workers | TrainWorkers, *arguments: Any) -> T:
        with threads(workers.cpus):
            return function(*arguments)

    def train(
        self, worker: Callable[[Row], None], config: Row, workers: TrainWorkers, report: Callable[[Row], None]
    ) -> None:  # one worker, because a group in one process would share its cores
        with threads(workers.cpus):
            worker({**config, "report": report})


def within_cores(spec: JobSpec) -> JobSpec:
    """Return a spec with at most one training worker, and no more workers and CPUs than this machine has cores."""
    cluster, most = spec.cluster, cores()
    workers = {name: value for name in type(cluster).model_fields if hasattr(value := getattr(cluster, name), "cpus")}
    capped = {}
    for name, each in workers.items():
        smaller = each.model_copy(update={"cpus": min(each.cpus, most)})
        count = 1 if isinstance(smaller, TrainWorkers) else _at_once(smaller)
        capped[name] = smaller.model_copy(update={"workers": count})
    return spec.model_copy(update={"cluster": cluster.model_copy(update=capped)})


def _at_once(workers: Workers) -> int:
    """Return the number of workers that this machine has cores for, at least 1."""
    return max(1, min(workers.workers, cores() // workers.cpus))
