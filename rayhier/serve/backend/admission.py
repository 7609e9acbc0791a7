"""Refuses queries that would wait too long, by the number that wait and the rate of answers (Little's law).

A burst of queries is accepted: only a queue that does not end for a while shows that a server gets more queries than
it can answer (CoDel's good queues and bad ones; Nichols and Jacobson, 2012).
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rayhier.serve.errors import overloaded

STANDING = 0.05
"""Seconds for which a queue may be too long before queries are refused."""
CALM = 1.0
"""Seconds without a refusal after which a burst is accepted again."""
QUEUED = 8
"""Number of queries that may always wait, whatever each takes: a limit in seconds alone would refuse slow queries of a
few clients."""
FORGETS = 0.05
"""Weight of the latest query in the moving mean of the seconds between two answers."""


class Shares:
    """Counts what requests hold of something that is limited. One peer may hold a share of it."""

    def __init__(self, what: str, most: int, share: float) -> None:
        self._what, self._most, self._own = what, most, math.ceil(share * most)
        self._held = Counter[str]()
        self.held = 0

    def take(self, peer: str, amount: int = 1) -> None:
        """Count what a request takes. ApiError 503 if all, or its peer, hold too much. "" is no peer."""
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
    """Counts queries that wait, and refuses queries that would wait too long behind them."""

    def __init__(self, most: float, clock: Callable[[], float] = time.perf_counter) -> None:
        """Refuse a query that would wait for more than `most` seconds, and behind 8 others, once the queue is long."""
        self._most, self._clock = most, clock
        self._there: list[int] = []
        self._each = 0.0
        self._left = self._short = clock()
        self._refused = -CALM

    @property
    def wait(self) -> float:
        """Seconds that a further query would wait. The largest request does not count, as it is being worked on."""
        return self._each * (sum(self._there) - max(self._there, default=0))

    @contextmanager
    def __call__(self, size: int) -> Iterator[None]:
        """Count a request of `size` queries as waiting, and as answered at the end. ApiError 503 if it is refused."""
        with self.counting(size) as answered:
            yield
            answered()

    @contextmanager
    def counting(self, size: int) -> Iterator[Callable[[], None]]:
        """Count a request of `size` queries. Yields a function to call at its answer. ApiError 503 if refused."""
        self.check()
        if not self._there:
            self._left = self._clock()
        self._there.append(size)
        try:
            yield lambda: self._answered(size)
        finally:
            self._there.remove(size)

    def check(self) -> None:
        """Raise ApiError 503 where a further request would be refused, whatever its queries."""
        now = self._clock()
        if len(self._there) <= 1:
            self._short = now
        stands = now - self._short > STANDING or now - self._refused < CALM
        limit = max(self._most, QUEUED * self._each)
        if stands and self.wait > limit:
            self._refused = now
            raise overloaded(f"questions wait for longer than {round(limit, 2):g} s; retry in a second")

    def _answered(self, size: int) -> None:
        now = self._clock()
        self._each += (1 - (1 - FORGETS) ** size) * ((now - self._left) / size - self._each)
        self._left = now
