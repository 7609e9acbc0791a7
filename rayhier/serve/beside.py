"""Work that grows with what a request asks for is done beside the event loop, where it is much."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

MANY = 1_000
"""Results from which a thread is worth its while: it takes about as long as ten."""
SMALL = 4_000_000
"""Products of numbers below which scanning or routing is done at once: a thread takes longer to wake."""
Given = ParamSpec("Given")
T = TypeVar("T")


async def beside(results: int, work: Callable[Given, T], *args: Given.args, **kwargs: Given.kwargs) -> T:
    """What a function returns for so many results, called in a thread where they are many."""
    if results < MANY:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
