"""Objects that an evaluation keeps in other processes, or in this one: a few alike, or one alone with all threads."""

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, Self, TypeVar

from rayhier.cluster.library import faiss

T = TypeVar("T")
R = TypeVar("R")
Call = tuple[Any, str, tuple[Any, ...]]
"""A holder, or what stands for it in this process; the name of its method; and the method's arguments."""
Run = Callable[[Sequence[Call]], list[Any]]
"""Function that makes calls at the same time, and returns their results."""


class Holder:
    """Keeps objects by number in one process. Its module imports little, because a Ray actor imports it."""

    def __init__(self, threads: int) -> None:
        faiss.omp_set_num_threads(min(threads, os.cpu_count() or threads))
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

    def one(self, method: Callable[Concatenate[T, ...], R], *arguments: Any) -> R:
        (result,) = self.call(method, *arguments)
        return result

    def close(self) -> None:
        self._run([(holder, "drop", (self._number,)) for holder in self._holders])


class Holders:
    def __init__(self, holders: Sequence[Any], alone: Any, run: Run) -> None:
        self.count, self._holders, self._alone, self._run = len(holders), holders, alone, run
        self._numbers = itertools.count()

    @classmethod
    def here(cls, count: int = 1) -> Self:
        holders = [Holder(faiss.omp_get_max_threads()) for _ in range(count)]
        return cls(holders, holders[0], lambda calls: [getattr(held, name)(*given) for held, name, given in calls])

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
