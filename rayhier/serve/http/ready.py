"""Readiness of a server: whether every shard group answers a search, checked once a second at most."""

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable

KEPT_SECONDS = 1.0
"""Seconds for which the result of a check is given again without another check."""


class Readiness:
    """Checks which shard groups do not answer; callers at the same time share one check."""

    def __init__(self, unavailable: Callable[[], Awaitable[list[str]]]) -> None:
        self._unavailable, self._asked = unavailable, -KEPT_SECONDS
        self._answer: asyncio.Task[list[str]] | None = None

    async def __call__(self) -> list[str]:
        """Return the names of the groups that do not answer now, or did not within the last second."""
        if self._answer is None or time.monotonic() - self._asked >= KEPT_SECONDS:
            # In a separate context, since other callers wait for it even if the first caller leaves.
            self._answer = asyncio.create_task(self._ask(), context=contextvars.Context())
            self._asked = time.monotonic()
        return await asyncio.shield(self._answer)

    async def _ask(self) -> list[str]:
        return await self._unavailable()
