"""Whether one more question would wait too long: by how many are there, and how fast they leave (Little's law).

A burst is let in: only a line that does not end for a while says that a server is asked for more than it can do
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
"""Questions that may always wait, whatever each costs: a fixed time alone would refuse a few clients of slow ones."""
FORGETS = 0.05
"""Share of the latest question in the mean seconds between two that leave."""


class Admission:
    """Lets questions in, or refuses them where those before them would keep them waiting for too long."""

    def __init__(self, most: float, clock: Callable[[], float] = time.perf_counter) -> None:
        """Refuse a question that would wait for longer than `most` seconds, and behind more than `QUEUED` others.

        Only where the line has stood for a while.
        """
        self._most, self._clock = most, clock
        self._there: list[int] = []
        self._each = 0.0
        self._left = self._short = clock()
        self._refused = -CALM

    @property
    def wait(self) -> float:
        """Seconds that one more question would wait: for all that are there but the largest request.

        That one is at work: who comes next waits for it, as behind any batch, and is no sign of a line.
        """
        return self._each * (sum(self._there) - max(self._there, default=0))

    @contextmanager
    def __call__(self, size: int) -> Iterator[None]:
        """Count a request of so many questions as there while the block runs, and as answered at its end.

        ApiError 503 where it is refused.
        """
        with self.counting(size) as answered:
            yield
            answered()

    @contextmanager
    def counting(self, size: int) -> Iterator[Callable[[], None]]:
        """Count a request as there while the block runs; the block says when it is answered, if it is."""
        self.check()
        if not self._there:
            self._left = self._clock()
        self._there.append(size)
        try:
            yield lambda: self._answered(size)
        finally:
            self._there.remove(size)

    def check(self) -> None:
        """ApiError 503 where one more request would be refused, whatever it asks."""
        now = self._clock()
        if len(self._there) <= 1:
            self._short = now
        stands = now - self._short > STANDING or now - self._refused < CALM
        limit = max(self._most, QUEUED * self._each)
        if stands and self.wait > limit:
            self._refused = now
            raise overloaded(f"questions wait for longer than {round(limit, 2):g} s; retry in a second")

    def _answered(self, size: int) -> None:
        """Note that a request's questions leave, answered."""
        now = self._clock()
        self._each += (1 - (1 - FORGETS) ** size) * ((now - self._left) / size - self._each)
        self._left = now
