"""Readiness: which shard groups answer a search. Asked by anyone without a token, so the groups are asked rarely."""

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable

KEPT_SECONDS = 1.0
"""How long an answer is given again without another search."""


class Readiness:
    """Names of the groups that do not answer; who asks at the same time shares one search."""

    def __init__(self, unavailable: Callable[[], Awaitable[list[str]]]) -> None:
        self._unavailable, self._asked = unavailable, -KEPT_SECONDS
        self._answer: asyncio.Task[list[str]] | None = None

    async def __call__(self) -> list[str]:
        """Names of the groups that do not answer now, or did not a second ago."""
        if self._answer is None or time.monotonic() - self._asked >= KEPT_SECONDS:
            # In a context of its own: it answers others too when the first who asked has left.
            self._answer = asyncio.create_task(self._ask(), context=contextvars.Context())
            self._asked = time.monotonic()
        return await asyncio.shield(self._answer)

    async def _ask(self) -> list[str]:
        return await self._unavailable()
