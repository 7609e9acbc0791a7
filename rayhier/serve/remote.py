"""A deployment behind its handle: it answers in time, or counts as lost until it answers a ping."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ray.exceptions import RayActorError, RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle

from rayhier.serve.errors import LostError, overloaded

AGAIN_SECONDS = 1.0
"""Seconds between two pings of a deployment that is lost."""
T = TypeVar("T")
log = logging.getLogger("ray.serve")


@dataclass
class Remote:
    """A deployment that is asked.

    What a replica that dies was asked is asked once more. A deployment that fails is lost; one that is only late with
    an answer is so for who asked, and for others if it does not answer a ping either.
    """

    name: str
    handle: DeploymentHandle
    ping_seconds: float = 2.0
    """Seconds that a ping may take."""
    another_seconds: float = 1.0
    """Seconds that another replica may take for what one was asked that has died: no other may be there."""
    lost: bool = field(default=False, init=False)
    """Whether no request is sent to it, until it answers a ping."""
    _back: "asyncio.Task[None] | None" = field(default=None, init=False, repr=False)

    async def ask(self, ask: Callable[[DeploymentHandle], Awaitable[T]], seconds: float) -> T:
        """Answer to what is asked of the handle; LostError where none comes within some seconds.

        ApiError 503 where the deployment has too many requests waiting.
        """
        if self.lost:
            raise LostError(self.name)
        try:
            async with asyncio.timeout(seconds):
                return await self._of_any(ask)
        except BackPressureError:
            raise overloaded(f"{self.name} has too many requests waiting; retry in a second") from None
        except (RayError, RayServeException, TimeoutError) as error:
            log.warning("%s gave no answer: %s: %s", self.name, type(error).__name__, error)
            self.lost = self.lost or not isinstance(error, TimeoutError)
            if self._back is None or self._back.done():
                # In a context of its own, which Serve does not cancel with that of a request whose caller has left.
                self._back = asyncio.create_task(self._until_it_answers(), context=contextvars.Context())
            raise LostError(self.name) from None

    async def answers(self) -> bool:
        """Whether a replica answers a ping now; one that is too busy for it does."""
        try:
            async with asyncio.timeout(self.ping_seconds):
                await self.handle.ping.remote()
        except BackPressureError:
            return True
        except (RayError, RayServeException, TimeoutError):
            return False
        return True

    async def _of_any(self, ask: Callable[[DeploymentHandle], Awaitable[T]]) -> T:
        try:
            return await ask(self.handle)
        except RayActorError:
            async with asyncio.timeout(self.another_seconds):
                return await ask(self.handle)

    async def _until_it_answers(self) -> None:
        while not await self.answers():
            if not self.lost:
                log.warning("%s is lost", self.name)
            self.lost = True
            await asyncio.sleep(AGAIN_SECONDS)
        if self.lost:
            log.warning("%s answers again", self.name)
        self.lost = False
