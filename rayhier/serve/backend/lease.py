"""A Writer's right to change an index: while its lease holds, and until another index takes the place of this one."""

import contextlib
from collections.abc import Callable

from rayhier.serve.errors import RETRY, ApiError
from rayhier.spec import InputError
from rayhier.storage.paths import Location
from rayhier.storage.writer_lease import leased


class MovedError(Exception):
    """A change was not made: another index is served by now, whose Writer makes it."""


class WriteLease:
    """The lease of a Writer on its index, from its beginning until it is closed."""

    def __init__(self, root: Location, is_named: Callable[[], bool]) -> None:
        """Take the lease on the index below `root`.

        `is_named` tells if current.json names this index. If not, the Writer of the named index has all changes of this
        index, so this Writer makes no more changes.

        Raises:
            InputError: another Writer's lease holds, or current.json names another index.
        """
        self._root, self._is_named = root, is_named
        self._take()
        self.has_caught_up = False
        """True once the Writer has seen all changes of earlier Writers. The Writer accepts changes only then."""
        self.moved = False
        """True once the Writer of another index has all changes, and makes all further ones."""

    def close(self) -> None:
        self._closing.close()

    @property
    def epoch(self) -> int:
        """Number of the lease, which changes carry."""
        return self._held.epoch

    def holds(self) -> bool:
        """Return True while this Writer may change the index: it has caught up, and no other can have taken over."""
        return self.has_caught_up and self._held()

    @property
    def lost(self) -> bool:
        """True if another server may write, and nothing else writes in place of this server."""
        return not self.moved and not self._held()

    def lose(self) -> None:
        """Note that another Writer has taken over."""
        self._held.lost.set()

    def take_again(self) -> bool:
        """Take the lost lease again.

        Returns False while another Writer's lease holds, if current.json names another index, or if storage refuses.

        Changes are refused until the Writer has caught up.
        """
        self.has_caught_up = False
        self.close()
        self.lose()
        try:
            self._take()
        except (InputError, OSError):
            return False
        return True

    def _take(self) -> None:
        with contextlib.ExitStack() as taking:
            held = taking.enter_context(leased(self._root))
            if not self._is_named():  # read after the lease was taken, as the Writer of the named index ends leases
                raise InputError(f"{self._root}: current.json names another index, so nothing was changed: start again")
            self._held, self._closing = held, taking.pop_all()

    def check(self) -> None:
        """Raise ApiError 503 where another Writer may have taken over."""
        if not self.holds():
            message = (
                "the lease of this Writer is over: storage did not take its renewal, or another server writes; a "
                "change is there or not: send it again"
            )
            raise ApiError(503, "not_the_writer", message, RETRY)

    def check_moved(self) -> None:
        """Raise MovedError where another index took the place of this one."""
        if self.moved:
            raise MovedError
