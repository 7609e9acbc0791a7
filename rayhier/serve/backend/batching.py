"""Answers questions in batches: a question waits only while an earlier batch is at work.

There is no timer: an idle server answers at once, and a busy one makes its batches larger by itself. Questions, such as
the queries of a request, share a batch where their keys are equal, for instance the same k and as many leaves.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rayhier.serve.errors import overloaded
from rayhier.serve.metrics import Metrics
from rayhier.serve.threads import begin

CANCELLED = "what was asked together with others was cancelled; retry in a second"
Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(eq=False)  # queries may be arrays, of which == makes an array
class _Waiting(Generic[Q, A]):
    key: Hashable
    size: int
    question: Q
    answer: "asyncio.Future[A]"
    since: float = field(default_factory=lambda: time.perf_counter())


class Batches(Generic[Q, A]):
    """Gathers questions to an asynchronous function into batches."""

    def __init__(
        self,
        ask: Callable[[Sequence[Q]], Awaitable[Sequence[A]]],
        most: int,
        stage: str = "",
        metrics: Metrics | None = None,
        at_once: int = 1,
    ) -> None:
        """Answer by `ask`, which takes a batch of questions of equal keys and returns their answers in order.

        The sizes of a batch's questions add up to at most `most`, and `at_once` batches are at work at a time. Sizes of
        batches are recorded in the metrics of `stage`.
        """
        self._ask, self._most, self._at_once, self._stage, self._metrics = ask, most, at_once, stage, metrics
        self._waiting: deque[_Waiting[Q, A]] = deque()
        self._working: set[asyncio.Task[None]] = set()

    async def __call__(self, question: Q, size: int = 1, key: Hashable = None) -> tuple[A, float]:
        loop = asyncio.get_running_loop()
        waiting: _Waiting[Q, A] = _Waiting(key, size, question, loop.create_future())
        self._waiting.append(waiting)
        self._start()
        try:
            answer = await waiting.answer
        finally:
            # A query whose caller has left is dropped, unless its batch has begun.
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        return answer, waiting.since

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def _start(self) -> None:
        if self._waiting and len(self._working) < self._at_once:
            task = begin(self._work())
            self._working.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._working.discard(task)
        self._start()

    def _taken(self) -> list[_Waiting[Q, A]]:
        """Take the oldest question, and further ones with the same key that fit into its batch, oldest first."""
        first = self._waiting.popleft()
        taken, size, left = [first], first.size, deque[_Waiting[Q, A]]()
        while self._waiting:
            call = self._waiting.popleft()
            if call.key == first.key and size + call.size <= self._most:
                taken.append(call)
                size += call.size
            else:
                left.append(call)
        self._waiting = left
        self._start()  # calls of another key may be made at the same time
        return taken

    async def _work(self) -> None:
        # By now every call of this round of the event loop waits, too.
        taken, now = self._taken() if self._waiting else [], time.perf_counter()
        if not taken:
            return
        for call in taken:
            call.since = now - call.since
        try:
            if self._metrics is not None:
                self._metrics.batched(self._stage, sum(call.size for call in taken))
            answers = await self._ask([call.question for call in taken])
            if len(answers) != len(taken):
                raise ValueError(f"got {len(answers)} answers to {len(taken)} calls")
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  every caller gets it
            # A caller whose future were cancelled would be taken for one that has left.
            failure = overloaded(CANCELLED) if isinstance(error, asyncio.CancelledError) else error
            for call in taken:
                if not call.answer.done():
                    call.answer.set_exception(failure)
            return
        for call, answer in zip(taken, answers, strict=True):
            if not call.answer.done():
                call.answer.set_result(answer)
