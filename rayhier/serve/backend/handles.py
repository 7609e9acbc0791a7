"""Clients of deployments. A deployment that does not answer in time counts as lost until it answers a ping.

Ray Serve lets requests to a deployment without replicas wait, so only a missing answer shows an outage.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle, DeploymentResponse

from rayhier.arrays import Floats
from rayhier.search.retrieve import Reading
from rayhier.search.snapshot import Seen
from rayhier.serve.backend.changes import Rows, Written
from rayhier.serve.backend.follower import SECONDS as READER_SECONDS
from rayhier.serve.backend.follower import Newest
from rayhier.serve.errors import ApiError, LostError, overloaded
from rayhier.serve.threads import begin

AGAIN_SECONDS = 1.0
"""Seconds between two pings to a lost deployment."""
OPEN_SECONDS = 600.0
"""Largest number of seconds in which all replicas of a group must open a version."""
WRITER_AGAIN = 5
"""Seconds after which clients should repeat a change if the Writer does not answer."""
T = TypeVar("T")
log = logging.getLogger("ray.serve")


@dataclass
class DeploymentClient:
    """A client of a deployment, which sends no requests while the deployment does not answer.

    A request to a replica that dies is sent once more. The deployment counts as lost if a request fails, or if a
    request is late and no replica answers a health check. All other requests then end at once. If a request takes
    longer than its caller allows, only this request fails, unless the deployment does not answer a ping either. A
    request whose caller has left is cancelled in the replica.
    """

    name: str
    handle: DeploymentHandle
    seconds: float = 5.0
    ping_seconds: float = 2.0
    """Largest number of seconds for a ping, which does a small piece of a replica's work."""
    late_seconds: float = 0.5
    """Seconds after which a request is late, so that the client sends a health check."""
    alive_seconds: float = 2.0
    """Largest number of seconds for two health checks, which a replica answers in the middle of other work."""
    another_seconds: float = 0.5
    """Largest number of seconds for another replica to answer the request of a dead replica. There may be no other
    replica."""
    lost: bool = field(default=False, init=False)
    """True while requests fail at once, until the deployment answers a ping."""
    _calls: "set[asyncio.Task[Any]]" = field(default_factory=set, init=False, repr=False)
    _sign: "asyncio.Task[None] | None" = field(default=None, init=False, repr=False)
    _back: "asyncio.Task[None] | None" = field(default=None, init=False, repr=False)

    async def ask(self, ask: Callable[[DeploymentHandle], DeploymentResponse[T]], seconds: float | None = None) -> T:
        """Send the request of `ask`. LostError if no answer comes in time, ApiError 503 if too many requests wait."""
        seconds = self.seconds if seconds is None else seconds
        if self.lost:
            self._look()
            raise LostError(self.name)
        task: asyncio.Task[T] = asyncio.create_task(self._of_any(ask))
        self._calls.add(task)
        late = asyncio.get_running_loop().call_later(self.late_seconds, self._listen)
        try:
            async with asyncio.timeout(seconds):
                return await task
        except BackPressureError:
            raise overloaded(f"{self.name} has too many requests waiting. Retry in a second") from None
        except TimeoutError:
            log.warning("%s gave no answer within %g s", self.name, round(seconds, 3))
        except asyncio.CancelledError:
            if _leaves():
                raise
        except Exception as error:  # noqa: BLE001  Ray's errors and those of its transport
            log.warning("%s is lost: %s: %s", self.name, type(error).__name__, error)
            self._lose()
        finally:
            late.cancel()
            self._calls.discard(task)
        self._look()
        raise LostError(self.name)

    async def answers(self) -> bool:
        """Return True if a replica answers a ping now, or is too busy to answer."""
        return await _replies(self.handle.ping, self.ping_seconds)

    async def _of_any(self, ask: Callable[[DeploymentHandle], DeploymentResponse[T]]) -> T:
        try:
            return await _answer(ask(self.handle))
        except RayActorError as dead:
            try:
                async with asyncio.timeout(self.another_seconds):
                    return await _answer(ask(self.handle))
            except TimeoutError:
                raise dead from None

    def _lose(self) -> None:
        self.lost = True
        for task in self._calls:
            task.cancel()

    def _listen(self) -> None:
        """Send one health check to the deployment for all calls that are late."""
        if not self.lost and (self._sign is None or self._sign.done()):
            self._sign = begin(self._gives_sign())

    async def _gives_sign(self) -> None:
        for _ in range(2):  # the first call may go to a replica that hangs while another does not
            if await _replies(self.handle.alive, self.alive_seconds / 2):
                return
        if not self.lost:
            log.warning("%s is lost: it answers no health check", self.name)
            self._lose()
            self._look()

    def _look(self) -> None:
        if self._back is None or self._back.done():
            self._back = begin(self._until_it_answers())

    async def _until_it_answers(self) -> None:
        while not await self.answers():
            if not self.lost:
                log.warning("%s is lost: it answers no ping", self.name)
                self._lose()
            await asyncio.sleep(AGAIN_SECONDS)
        if self.lost:
            log.warning("%s answers again", self.name)
        self.lost = False


class ShardHandle(DeploymentClient):
    async def read(self, work: Reading, seen: Seen) -> Any:
        return await self.ask(lambda handle: handle.read.remote(work, seen))

    async def open(self, number: int) -> None:
        try:
            await self.handle.broadcast("open", number).results_async(timeout_s=OPEN_SECONDS)
        except Exception as error:  # Ray's errors, those of its transport, and those of a replica
            log.warning("%s: version %d cannot be opened: %s", self.name, number, error)
            raise LostError(self.name) from error


class WriterHandle(DeploymentClient):
    """A client of the Writer's deployment. ApiError as the Writer raises it, or 503 if the Writer does not answer."""

    async def put(self, documents: Rows, key: str | None = None, body: str = "", *, upsert: bool = True) -> Written:
        return await self._told(key, lambda handle, key: handle.put.remote(documents, key, body, upsert))

    async def delete(self, ids: Sequence[str], key: str | None = None, body: str = "") -> Written:
        return await self._told(key, lambda handle, key: handle.delete.remote(ids, key, body))

    async def rollback(self, number: int, key: str | None = None) -> Newest:
        return await self._told(key, lambda handle, key: handle.rollback.remote(number, key))

    async def newest(self, reader: str, seen: Seen) -> Newest:
        """Tell the Writer which version and change a reading process serves. Returns the newest ones.

        LostError if the Writer does not answer.
        """
        newest: Newest = await self.ask(lambda handle: handle.newest.remote(reader, seen), READER_SECONDS)
        return newest

    async def _told(
        self, key: str | None, ask: Callable[[DeploymentHandle, str], DeploymentResponse[T | ApiError]]
    ) -> T:
        key = key or uuid.uuid4().hex  # a request to a dying replica is repeated, and must not change anything twice
        try:
            answer: T | ApiError = await self.ask(lambda handle: ask(handle, key))
        except LostError:
            message = "the Writer does not answer. The change may have been made: repeat it with its Idempotency-Key"
            raise ApiError(503, "writer_lost", message, {"Retry-After": str(WRITER_AGAIN)}) from None
        if isinstance(answer, ApiError):
            raise answer
        return answer


class ScorerHandle(DeploymentClient):
    async def score(self, queries: Sequence[str], items: Sequence[str], seconds: float) -> Floats:
        return await self.ask(lambda handle: handle.score.remote(list(queries), list(items)), seconds)


async def _replies(method: DeploymentHandle, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await _answer(method.remote())
    except BackPressureError:
        return True
    except asyncio.CancelledError:
        if _leaves():
            raise
        return False
    except Exception:  # noqa: BLE001  Ray's errors and those of its transport
        return False
    return True


async def _answer(response: DeploymentResponse[T]) -> T:
    """Wait for the answer to a call. If the caller is cancelled, cancel the call in its replica."""
    try:
        answer: T = await response
    except asyncio.CancelledError:
        response.cancel()
        raise
    return answer


def _leaves() -> bool:
    """Return True if the calling task itself is cancelled, not only the task that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
