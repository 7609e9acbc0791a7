"""Runs work in threads off the event loop, and tasks that outlive the request that began them."""

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

MANY = 1_000
"""Number of results from which work runs in a thread: starting a thread takes about as long as ten results."""
SMALL = 4_000_000
"""Most multiply-adds of a scan or a routing that runs without a thread: waking a thread takes longer."""
Given = ParamSpec("Given")
T = TypeVar("T")


async def run_in_thread(results: int, work: Callable[Given, T], *args: Given.args, **kwargs: Given.kwargs) -> T:
    """Call `work` on some number of results and return its value: in a thread from 1,000 results on, else at once."""
    if results < MANY:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


async def run_in(executor: Executor, work: Callable[Given, T], *args: Given.args, **kwargs: Given.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(executor, partial(work, *args, **kwargs))


def start_pools() -> None:
    """Let Arrow start its threads now: else they would yield to others like the thread that asks for them first."""
    with pa.BufferOutputStream() as sink:
        pq.write_table(pa.table({str(number): [number] for number in range(64)}), sink)
        pq.read_table(pa.BufferReader(sink.getvalue()))


def yield_to_others() -> None:
    """Let this thread have a core only where no other thread needs it, as far as the system knows such threads."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


class Tasks:
    """Keeps tasks until they end. Each has a new context, because Serve cancels calls in a request's context."""

    def __init__(self) -> None:
        self._tasks = set[asyncio.Task[Any]]()

    def begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a caller that waits gets it too
