"""Calls that arrive together are made together: a call waits only while an earlier one is at work.

No timer: an idle server answers at once, and a busy one makes its batches larger by itself. Calls go together where
their keys are equal, for instance the same k and as many leaves.
"""

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rayhier.serve.errors import overloaded
from rayhier.serve.metrics import Metrics

CANCELLED = "what was asked together with others was cancelled; retry in a second"
Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(eq=False)  # questions may be arrays, of which == makes an array
class _Waiting(Generic[Q, A]):
    """One call that waits for its answer."""

    key: Hashable
    size: int
    question: Q
    answer: "asyncio.Future[A]"
    since: float = field(default_factory=lambda: time.perf_counter())


class Batches(Generic[Q, A]):
    """Gathers calls of one function over many questions."""

    def __init__(
        self,
        ask: Callable[[Sequence[Q]], Awaitable[Sequence[A]]],
        most: int,
        stage: str = "",
        metrics: Metrics | None = None,
        at_once: int = 1,
    ) -> None:
        """Ask with questions of one key, whose sizes add up to at most `most`; `at_once` batches may be at work.

        Sizes of batches go to the metrics of a stage.
        """
        self._ask, self._most, self._at_once, self._stage, self._metrics = ask, most, at_once, stage, metrics
        self._waiting: deque[_Waiting[Q, A]] = deque()
        self._working: set[asyncio.Task[None]] = set()
        self.sizes: deque[int] = deque(maxlen=1000)
        """Sizes of the latest batches."""

    async def __call__(self, question: Q, size: int = 1, key: Hashable = None) -> tuple[A, float]:
        """Answer of a question of some size, and the seconds it waited before it was asked."""
        loop = asyncio.get_running_loop()
        waiting: _Waiting[Q, A] = _Waiting(key, size, question, loop.create_future())
        self._waiting.append(waiting)
        self._start()
        try:
            answer = await waiting.answer
        finally:
            # A caller that is gone takes its question with it, if nobody has begun with it.
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        return answer, waiting.since

    @property
    def waiting(self) -> int:
        """Number of calls that wait."""
        return len(self._waiting)

    def _start(self) -> None:
        if self._waiting and len(self._working) < self._at_once:
            # In a context of its own: Serve cancels what was asked in that of a request whose caller has left.
            task = asyncio.create_task(self._work(), context=contextvars.Context())
            self._working.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._working.discard(task)
        self._start()

    def _taken(self) -> list[_Waiting[Q, A]]:
        """The oldest call, and those of its key that fit beside it, in the order of their coming."""
        first = self._waiting.popleft()
        taken, size, left = [first], first.size, deque[_Waiting[Q, A]]()
        while self._waiting:
            one = self._waiting.popleft()
            if one.key == first.key and size + one.size <= self._most:
                taken.append(one)
                size += one.size
            else:
                left.append(one)
        self._waiting = left
        self.sizes.append(size)
        self._start()  # others of another key may be made beside these
        return taken

    async def _work(self) -> None:
        # By now every call of this round of the event loop waits, too.
        taken, now = self._taken() if self._waiting else [], time.perf_counter()
        if not taken:
            return
        for one in taken:
            one.since = now - one.since
        try:
            if self._metrics is not None:
                self._metrics.batched(self._stage, sum(call.size for call in taken))
            answers = await self._ask([one.question for one in taken])
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  every caller gets it
            # A caller whose future were cancelled would be taken for one that has left.
            said = overloaded(CANCELLED) if isinstance(error, asyncio.CancelledError) else error
            for one in taken:
                if not one.answer.done():
                    one.answer.set_exception(said)
            return
        for one, answer in zip(taken, answers, strict=True):
            if not one.answer.done():
                one.answer.set_result(answer)
