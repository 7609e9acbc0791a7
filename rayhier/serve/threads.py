"""Run work that grows with the size of a request in a thread where it is large, off the event loop."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

MANY = 1_000
"""Results from which a thread is worth its while: it takes about as long as ten."""
SMALL = 4_000_000
"""Products of numbers below which scanning or routing is done at once: a thread takes longer to wake."""
Given = ParamSpec("Given")
T = TypeVar("T")


async def run_in_thread(results: int, work: Callable[Given, T], *args: Given.args, **kwargs: Given.kwargs) -> T:
    """Call `work`, which handles `results` results: in a thread from MANY on, else at once; returns its value."""
    if results < MANY:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
