"""Refuses requests that would wait too long, and answers waiting requests in batches.

`Admission` estimates a query's wait from the number of waiting queries and the rate of answers (Little's law). A burst
of queries is accepted. A queue that stays long shows that queries come faster than answers (the "bad queue" of CoDel,
Nichols and Jacobson, 2012).

`Batches` has no timer: an idle server answers at once, and a busy server gets larger batches. A question is, for
instance, the queries of a request. Questions with equal keys, such as k and beam, share a batch.
"""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rayhier.serve.errors import overloaded
from rayhier.serve.metrics import Metrics
from rayhier.serve.threads import begin

STANDING = 0.05
"""Seconds for which requests must have queued without a break before a query is refused."""
CALM = 1.0
"""Seconds without a refusal after which a burst is accepted again."""
QUEUED = 8
"""Number of queries that may always wait. A limit in seconds alone would refuse slow queries of a few clients."""
FORGETS = 0.05
"""Weight of the latest query in the moving mean of the seconds between two answers."""
CANCELLED = "the batch with this request was cancelled. Retry in a second"
Q = TypeVar("Q")
A = TypeVar("A")


class Shares:
    """Counts how much of a resource requests hold: at most `most`, and `share` of `most` for an address (peer)."""

    def __init__(self, what: str, most: int, share: float) -> None:
        self._what, self._most, self._own = what, most, math.ceil(share * most)
        self._held = Counter[str]()
        self.held = 0

    def take(self, peer: str, amount: int = 1) -> None:
        """Count what a request takes. ApiError 503 beyond the limit of a peer (not for ""), or of all peers."""
        own, held = self._own if peer else self._most, self._held[peer] + amount
        if held > own or self.held + amount > self._most:
            raise overloaded(f"{self._what}: {self.held} are held; allowed: {self._most}, and {own} for one address")
        self.give(peer, -amount)

    def give(self, peer: str, amount: int = 1) -> None:
        self.held -= amount
        self._held[peer] -= amount
        if not self._held[peer]:
            del self._held[peer]

    @contextmanager
    def holding(self, peer: str, amount: int = 1) -> Iterator[None]:
        self.take(peer, amount)
        try:
            yield
        finally:
            self.give(peer, amount)


class Admission:
    """Counts the queries that wait, and refuses further queries that would wait too long."""

    def __init__(self, most: float, clock: Callable[[], float] = time.perf_counter) -> None:
        """Refuse a query that would wait for `most` seconds or longer, if requests have queued without a break."""
        self._most, self._clock = most, clock
        self._there: list[int] = []
        self._each = 0.0
        self._left = self._short = clock()
        self._refused = -CALM

    @property
    def wait(self) -> float:
        """Seconds that a further query would wait. The largest request, which is at work, does not count."""
        return self._each * (sum(self._there) - max(self._there, default=0))

    @contextmanager
    def __call__(self, size: int) -> Iterator[None]:
        """Count a request of `size` queries until the block ends with its answer. ApiError 503 if too many wait."""
        with self.counting(size) as answered:
            yield
            answered()

    @contextmanager
    def counting(self, size: int) -> Iterator[Callable[[], None]]:
        """Count a request of `size` queries. Yields a function to call at its answer. ApiError 503 if too many wait."""
        self.check()
        if not self._there:
            self._left = self._clock()
        self._there.append(size)
        try:
            yield lambda: self._answered(size)
        finally:
            self._there.remove(size)

    def check(self) -> None:
        """Raise ApiError 503 if a further request would be refused, whatever its size."""
        now = self._clock()
        if len(self._there) <= 1:
            self._short = now
        stands = now - self._short > STANDING or now - self._refused < CALM
        limit = max(self._most, QUEUED * self._each)
        if stands and self.wait > limit:
            self._refused = now
            raise overloaded(f"questions wait for longer than {round(limit, 2):g} s. Retry in a second")

    def _answered(self, size: int) -> None:
        now = self._clock()
        self._each += (1 - (1 - FORGETS) ** size) * ((now - self._left) / size - self._each)
        self._left = now


@dataclass(eq=False)  # == of two arrays is an array
class _Waiting(Generic[Q, A]):
    key: Hashable
    size: int
    question: Q
    answer: "asyncio.Future[A]"
    since: float = field(default_factory=lambda: time.perf_counter())


class Batches(Generic[Q, A]):
    """Gathers questions to an asynchronous function into batches. A question waits only while a batch is at work."""

    def __init__(
        self,
        ask: Callable[[Sequence[Q]], Awaitable[Sequence[A]]],
        most: int,
        stage: str = "",
        metrics: Metrics | None = None,
        at_once: int = 1,
    ) -> None:
        """Answer by `ask`, which takes a batch of questions with equal keys and returns their answers in order.

        The sizes in a batch add up to at most `most`. `at_once` batches may run. `metrics` records sizes as `stage`.
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
            # A question whose caller has left is dropped, unless its batch has begun.
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
        """Take the next batch: the oldest question and, oldest first, further questions with its key that still fit."""
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
        self._start()  # a batch with another key may run at the same time
        return taken

    async def _work(self) -> None:
        # By now every question of this round of the event loop waits.
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
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  every caller gets the error
            # A cancelled future would look as if its caller had left.
            failure = overloaded(CANCELLED) if isinstance(error, asyncio.CancelledError) else error
            for call in taken:
                if not call.answer.done():
                    call.answer.set_exception(failure)
            return
        for call, answer in zip(taken, answers, strict=True):
            if not call.answer.done():
                call.answer.set_result(answer)
