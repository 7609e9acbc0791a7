"""Do the work of stages in this process, by threads: most of the work releases Python's lock.

Numbers of workers and CPUs in a spec are upper limits here. A thread that no core is left for is not started.
"""

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rayhier.executor import Actor, Pool, Row
from rayhier.spec import InputError, no_room
from rayhier.spec.cluster import TrainWorkers, Workers

T = TypeVar("T")


class Here:
    def stream(self, items: Sequence[Row], pool: Pool, ahead: Pool | None = None) -> Iterator[Row]:
        done = queue.SimpleQueue[Row | BaseException | None]()
        free, stops = queue.SimpleQueue[list[Actor]](), threading.Event()
        count = min(_at_once(pool.workers), len(items))
        for _ in range(count):  # before any works: transformers changes torch's default type while it loads a model
            free.put([each.actor(**each.arguments) for each in (ahead, pool) if each is not None])

        def work(item: Row) -> None:
            actors = free.get()
            try:
                for actor in actors[:-1]:
                    (item,) = actor(item)
                for row in actors[-1](item):
                    if stops.is_set():
                        return
                    done.put(row)
            except BaseException as error:  # noqa: BLE001  raised again in the thread that iterates
                done.put(error)
            else:
                done.put(None)
            finally:
                free.put(actors)

        with ThreadPoolExecutor(max(1, count), "stage", _limit, (pool.workers.cpus,)) as threads:
            futures, left = [threads.submit(work, item) for item in items], len(items)
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

    def call(self, function: Callable[..., T], _: Workers | TrainWorkers, *arguments: Any) -> T:
        return function(*arguments)

    def train(
        self, worker: Callable[[Row], None], config: Row, workers: TrainWorkers, report: Callable[[Row], None]
    ) -> None:  # one worker: a group in one process would share its cores
        del workers
        worker({**config, "report": report})


def _limit(cpus: int) -> None:
    """Set the threads of libraries, which count them by the thread that calls."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(min(cpus, _cores()))
    if (faiss := sys.modules.get("faiss")) is not None:
        faiss.omp_set_num_threads(min(cpus, _cores()))


def _at_once(workers: Workers) -> int:
    """Return the number of workers that this machine has cores for, at least 1."""
    return max(1, min(workers.workers, _cores() // workers.cpus))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
