"""Where the parts of an evaluation live: in this process, or, in ray.py, in many."""

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from rayhier.cluster.library import faiss

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
V = TypeVar("V")
P = ParamSpec("P")


class Parts(Protocol[T_co]):
    """Objects of one kind, each in some process."""

    def call(self, method: Callable[Concatenate[T_co, P], R], *arguments: P.args, **named: P.kwargs) -> list[R]:
        """Call a method of every object with the same arguments; returns their answers."""
        ...

    def each(self, method: Callable[Concatenate[T_co, ...], R], arguments: Sequence[tuple[Any, ...]]) -> list[R]:
        """Call a method of every object, with a tuple of arguments for each; returns their answers."""
        ...

    def send(self, value: V) -> V:
        """Make a stand-in for a value that several calls take, so that it is sent only once."""
        ...

    def close(self) -> None:
        """Drop the objects."""
        ...


class Workers(Protocol):
    """Processes that hold parts."""

    count: int
    """Most processes at once."""

    def start(self, make: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> Parts[T]:
        """Make one object, `make(*tuple)`, for each tuple of arguments; at most `count` tuples."""
        ...

    def alone(self, make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Parts[T]:
        """Make an object in a separate process."""
        ...


class Holder:
    """Holds objects by number, in one of several processes, and calls their methods.

    An actor imports the module of its class; this module has the class because it imports little else.
    """

    def __init__(self, cpus: int) -> None:
        faiss.omp_set_num_threads(cpus)
        self.objects: dict[int, Any] = {}

    def make(self, number: int, make: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Make an object, `make(*arguments, **named)`, and keep it under its number."""
        self.objects[number] = make(*arguments, **named)

    def call(self, number: int, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a method on an object."""
        return method(self.objects[number], *arguments, **named)

    def drop(self, number: int) -> None:
        """Drop an object."""
        self.objects.pop(number, None)


class LocalParts(Generic[T]):
    """Objects in this process."""

    def __init__(self, objects: Sequence[T]) -> None:
        self.objects = list(objects)

    def call(self, method: Callable[Concatenate[T, P], R], *arguments: P.args, **named: P.kwargs) -> list[R]:
        """Call a method of every object, one after the other; returns their answers."""
        return [method(item, *arguments, **named) for item in self.objects]

    def each(self, method: Callable[Concatenate[T, ...], R], arguments: Sequence[tuple[Any, ...]]) -> list[R]:
        """Call a method of every object in turn, with a tuple of arguments for each; returns their answers."""
        return [method(item, *given) for item, given in zip(self.objects, arguments, strict=True)]

    def send(self, value: V) -> V:
        """The value itself."""
        return value

    def close(self) -> None:
        """Drop the objects."""
        self.objects.clear()


class LocalWorkers:
    """Workers that keep up to `count` objects, all in this process."""

    def __init__(self, count: int = 1) -> None:
        self.count = count

    def start(self, make: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> LocalParts[T]:
        """Make one object, `make(*tuple)`, for each tuple of arguments."""
        return LocalParts([make(*given) for given in arguments])

    def alone(self, make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> LocalParts[T]:
        """Make one object."""
        return LocalParts([make(*arguments, **named)])
