"""Do the work of stages in this process, by threads: most of the work releases Python's lock.

Numbers of workers and CPUs in a spec are upper limits here. A thread that no core is left for is not started.
"""

import contextlib
import os
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rayhier.executor import Actor, Pool, Row
from rayhier.executor.holders import Call, Holder, Holders
from rayhier.spec import InputError, no_room
from rayhier.spec.cluster import TrainWorkers, Workers

T = TypeVar("T")


class Here:
    def stream(self, items: Sequence[Row], pool: Pool, ahead: Pool | None = None) -> Iterator[Row]:
        done = queue.SimpleQueue[Row | BaseException | None]()
        free = queue.SimpleQueue[list[Actor]]()
        count = min(_at_once(pool.workers), len(items))
        for _ in range(count):  # before any works: transformers changes torch's default type while it loads a model
            free.put([each.actor(**each.arguments) for each in (ahead, pool) if each is not None])

        def work(item: Row) -> None:
            actors = free.get()
            try:
                for actor in actors[:-1]:
                    (item,) = actor(item)
                for row in actors[-1](item):
                    done.put(row)
            except BaseException as error:  # noqa: BLE001  raised again in the thread that iterates
                done.put(error)
            else:
                done.put(None)
            finally:
                free.put(actors)

        with ThreadPoolExecutor(max(1, count), "stage") as threads:
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
            finally:
                for future in futures:
                    future.cancel()

    def call(self, function: Callable[..., T], _: Workers | TrainWorkers, *arguments: Any) -> T:
        return function(*arguments)

    def train(
        self, worker: Callable[[Row], None], config: Row, workers: TrainWorkers, report: Callable[[Row], None]
    ) -> None:  # one worker: a group in one process would share its cores
        del workers
        worker({**config, "report": report})

    @contextlib.contextmanager
    def holders(self, workers: Workers, limit: Callable[[int], None]) -> Iterator[Holders]:
        """Start a thread for each holder: libraries count their threads by the thread that calls them."""
        count = _at_once(workers)
        with contextlib.ExitStack() as stack:
            held = [
                _Held(limit, threads, stack.enter_context(ThreadPoolExecutor(1, "holder")))
                for threads in (*[workers.cpus] * count, min(count * workers.cpus, _cores()))
            ]
            yield Holders(held[:-1], held[-1], _run)


class _Held:
    """A holder and its thread."""

    def __init__(self, limit: Callable[[int], None], threads: int, thread: ThreadPoolExecutor) -> None:
        self.thread, self.holder = thread, thread.submit(Holder, limit, threads).result()


def _run(calls: Sequence[Call]) -> list[Any]:
    running = [held.thread.submit(getattr(held.holder, name), *given) for held, name, given in calls]
    return [each.result() for each in running]


def _at_once(workers: Workers) -> int:
    """Return the number of workers that this machine has cores for, at least 1."""
    return max(1, min(workers.workers, _cores() // workers.cpus))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
