"""Objects that live in other processes or threads for a time: a few alike, or one alone with all CPUs."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")
Call = tuple[Any, str, tuple[Any, ...]]
"""A holder, or what represents it in this process; the name of its method; and the method's arguments."""
Run = Callable[[Sequence[Call]], list[Any]]
"""Function that makes calls at the same time, and returns their results."""


class Holder:
    """Keeps objects by number in one process. Its module imports little, because a Ray actor imports it."""

    def __init__(self, limit: Callable[[int], None], threads: int) -> None:
        limit(threads)
        self.objects: dict[int, Any] = {}

    def make(self, number: int, make: Callable[..., Any], *arguments: Any) -> None:
        self.objects[number] = make(*arguments)

    def call(self, number: int, method: Callable[..., Any], *arguments: Any) -> Any:
        return method(self.objects[number], *arguments)

    def drop(self, number: int) -> None:
        self.objects.pop(number, None)


class HeldObjects(Generic[T]):
    """Objects of one kind, one in each of some holders, under the same number."""

    def __init__(self, run: Run, holders: Sequence[Any], number: int) -> None:
        self._run, self._holders, self._number = run, holders, number

    def call(self, method: Callable[Concatenate[T, ...], R], *arguments: Any) -> list[R]:
        """Call a method of all objects at the same time, and return the results by object."""
        return self._run([(holder, "call", (self._number, method, *arguments)) for holder in self._holders])

    def in_turn(self, method: Callable[Concatenate[T, ...], R], *arguments: Any) -> list[R]:
        """Call a method of one object after another: a call that takes time has the machine to itself."""
        return [self._run([(holder, "call", (self._number, method, *arguments))])[0] for holder in self._holders]

    def one(self, method: Callable[Concatenate[T, ...], R], *arguments: Any) -> R:
        (result,) = self.call(method, *arguments)
        return result

    def close(self) -> None:
        self._run([(holder, "drop", (self._number,)) for holder in self._holders])


class Holders:
    def __init__(self, holders: Sequence[Any], alone: Any, run: Run) -> None:
        self.count, self._holders, self._alone, self._run = len(holders), holders, alone, run
        self._numbers = itertools.count()

    def start(self, make: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> HeldObjects[T]:
        """Make an object, `make(*tuple)`, in a holder for each tuple of arguments. There are at most `count`."""
        return self._made(self._holders[: len(arguments)], make, arguments)

    def alone(self, make: Callable[..., T], *arguments: Any) -> HeldObjects[T]:
        return self._made([self._alone], make, [arguments])

    def _made(
        self, holders: Sequence[Any], make: Callable[..., T], arguments: Sequence[tuple[Any, ...]]
    ) -> HeldObjects[T]:
        number = next(self._numbers)
        calls = zip(holders, arguments, strict=True)
        self._run([(holder, "make", (number, make, *values)) for holder, values in calls])
        return HeldObjects(self._run, holders, number)
