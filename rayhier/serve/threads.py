"""Runs work in threads off the event loop, and in tasks that outlive the requests that begin them."""

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
"""Number of results from which on work runs in a thread. To start a thread takes about as long as ten results."""
SMALL = 4_000_000
"""Largest number of multiply-adds of a scan or a routing that runs without a thread, because waking a thread takes
longer."""
_TASKS = set[asyncio.Task[Any]]()
"""Running tasks. asyncio keeps only weak references, so a task could otherwise be garbage-collected while it runs."""
Given = ParamSpec("Given")
T = TypeVar("T")


async def run_in_thread(results: int, work: Callable[Given, T], *args: Given.args, **kwargs: Given.kwargs) -> T:
    """Call `work` and return its value, in a thread if `work` handles 1,000 `results` or more."""
    if results < MANY:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


async def run_in(executor: Executor, work: Callable[Given, T], *args: Given.args, **kwargs: Given.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(executor, partial(work, *args, **kwargs))


def start_pools() -> None:
    """Let Arrow start its threads now. If a thread with low priority started them, they would inherit the priority."""
    with pa.BufferOutputStream() as sink:
        pq.write_table(pa.table({str(number): [number] for number in range(64)}), sink)
        pq.read_table(pa.BufferReader(sink.getvalue()))


def yield_to_others() -> None:
    """Lower this thread's priority, so that it uses a core only if no other thread needs the core."""
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def begin(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Run work in a task that outlives its request. In a new context, Ray Serve does not cancel the task's calls."""
    task = asyncio.create_task(work, context=contextvars.Context())
    _TASKS.add(task)
    task.add_done_callback(_TASKS.discard)
    return task
