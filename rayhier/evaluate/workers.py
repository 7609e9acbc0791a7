"""Interfaces for the processes that hold the parts of an evaluation: this process, or Ray actors (ray.py)."""

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from rayhier.cluster.library import faiss

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
V = TypeVar("V")
P = ParamSpec("P")


class Parts(Protocol[T_co]):
    """Interface of objects of one kind, which one process or several processes hold."""

    def call(self, method: Callable[Concatenate[T_co, P], R], *arguments: P.args, **named: P.kwargs) -> list[R]:
        """Call a method of all objects with the same arguments; returns their results."""
        ...

    def each(self, method: Callable[Concatenate[T_co, ...], R], arguments: Sequence[tuple[Any, ...]]) -> list[R]:
        """Call a method of all objects, each with its own tuple of arguments; returns their results."""
        ...

    def send(self, value: V) -> V:
        """Make a stand-in for an argument of several method calls, so that it is sent to each process only once."""
        ...

    def close(self) -> None:
        """Drop the objects from memory."""
        ...


class Workers(Protocol):
    """Interface of the processes in which objects are made and kept."""

    count: int
    """Most objects that `start` makes at once."""

    def start(self, make: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> Parts[T]:
        """Make an object, `make(*tuple)`, for each tuple of arguments; at most `count` tuples."""
        ...

    def alone(self, make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Parts[T]:
        """Make one object, in a process that holds nothing else."""
        ...


class Holder:
    """Holds objects by number in one of several processes, and calls their methods.

    A Ray actor imports the module of its class; the class is in this module because it imports little else.
    """

    def __init__(self, cpus: int) -> None:
        faiss.omp_set_num_threads(cpus)
        self.objects: dict[int, Any] = {}

    def make(self, number: int, make: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Make an object, `make(*arguments, **named)`, and keep it under a number."""
        self.objects[number] = make(*arguments, **named)

    def call(self, number: int, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a method of the object with this number; returns its result."""
        return method(self.objects[number], *arguments, **named)

    def drop(self, number: int) -> None:
        """Drop the object with this number."""
        self.objects.pop(number, None)


class LocalParts(Generic[T]):
    """`Parts` in this process: objects of one kind, whose methods are called one after the other."""

    def __init__(self, objects: Sequence[T]) -> None:
        self.objects = list(objects)

    def call(self, method: Callable[Concatenate[T, P], R], *arguments: P.args, **named: P.kwargs) -> list[R]:
        """Call a method of all objects, one after the other, with the same arguments; returns their results."""
        return [method(item, *arguments, **named) for item in self.objects]

    def each(self, method: Callable[Concatenate[T, ...], R], arguments: Sequence[tuple[Any, ...]]) -> list[R]:
        """Call a method of all objects in turn, each with its own tuple of arguments; returns their results."""
        return [method(item, *values) for item, values in zip(self.objects, arguments, strict=True)]

    def send(self, value: V) -> V:
        """Return the value itself: in one process it needs no stand-in."""
        return value

    def close(self) -> None:
        """Drop the objects from memory."""
        self.objects.clear()


class LocalWorkers:
    """Workers that make up to `count` objects at once, all in this process."""

    def __init__(self, count: int = 1) -> None:
        self.count = count

    def start(self, make: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> LocalParts[T]:
        """Make an object, `make(*tuple)`, for each tuple of arguments."""
        return LocalParts([make(*values) for values in arguments])

    def alone(self, make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> LocalParts[T]:
        """Make one object, in this process."""
        return LocalParts([make(*arguments, **named)])
