"""Refuse queries that would wait too long, by the number that wait and the rate at which they leave (Little's law).

A burst is let in: only a line that does not end for a while says that a server gets more queries than it can answer
(CoDel's good queues and bad ones; Nichols and Jacobson, 2012).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rayhier.serve.errors import overloaded

STANDING = 0.05
"""Seconds for which a line may be too long."""
CALM = 1.0
"""Seconds without a refusal after which a burst is let in again."""
QUEUED = 8
"""Queries that may always wait, whatever each costs: a fixed time alone would refuse a few clients of slow queries."""
FORGETS = 0.05
"""Share of the latest query in the mean seconds between two queries that leave."""


class Admission:
    """Lets queries in, or refuses queries that would wait for too long behind earlier ones."""

    def __init__(self, most: float, clock: Callable[[], float] = time.perf_counter) -> None:
        """Refuse a query that would wait for longer than `most` seconds, and behind more than `QUEUED` others.

        A query is refused only where the line has stood for a while.
        """
        self._most, self._clock = most, clock
        self._there: list[int] = []
        self._each = 0.0
        self._left = self._short = clock()
        self._refused = -CALM

    @property
    def wait(self) -> float:
        """Seconds that a further query would wait: for all requests that are counted but the largest.

        The largest request is at work: the next waits for it, as behind any batch, and this is no sign of a line.
        """
        return self._each * (sum(self._there) - max(self._there, default=0))

    @contextmanager
    def __call__(self, size: int) -> Iterator[None]:
        """Count a request of `size` queries as waiting while the block runs, and as answered at its end.

        ApiError 503 where the request is refused.
        """
        with self.counting(size) as answered:
            yield
            answered()

    @contextmanager
    def counting(self, size: int) -> Iterator[Callable[[], None]]:
        """Count a request of `size` queries while the block runs; yields a function to call when it is answered.

        ApiError 503 where the request is refused.
        """
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
        """Note that a request's queries leave, answered."""
        now = self._clock()
        self._each += (1 - (1 - FORGETS) ** size) * ((now - self._left) / size - self._each)
        self._left = now
