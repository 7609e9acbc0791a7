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
        """What a method of each object answers to one and the same arguments."""
        ...

    def each(self, method: Callable[Concatenate[T_co, ...], R], arguments: Sequence[tuple[Any, ...]]) -> list[R]:
        """What a method of each object answers to arguments of its own."""
        ...

    def send(self, value: V) -> V:
        """A stand-in for a value that several calls are given, so that it travels once."""
        ...

    def close(self) -> None:
        """Let go of the objects."""
        ...


class Workers(Protocol):
    """Processes that hold parts."""

    count: int
    """Processes at most."""

    def start(self, make: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> Parts[T]:
        """`make(*…)` for each tuple, at most `count` of them."""
        ...

    def alone(self, make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Parts[T]:
        """One object in a process of its own."""
        ...


class Holder:
    """One process of several: objects by number, whose methods it calls.

    An actor imports the module of its class, so it stands here, where little else is imported.
    """

    def __init__(self, cpus: int) -> None:
        faiss.omp_set_num_threads(cpus)
        self.objects: dict[int, Any] = {}

    def make(self, number: int, make: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Hold `make(*arguments, **named)`."""
        self.objects[number] = make(*arguments, **named)

    def call(self, number: int, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a method on an object."""
        return method(self.objects[number], *arguments, **named)

    def drop(self, number: int) -> None:
        """Let go of an object."""
        self.objects.pop(number, None)


class LocalParts(Generic[T]):
    """Objects in this process."""

    def __init__(self, objects: Sequence[T]) -> None:
        self.objects = list(objects)

    def call(self, method: Callable[Concatenate[T, P], R], *arguments: P.args, **named: P.kwargs) -> list[R]:
        """What a method of each object answers, one after the other."""
        return [method(one, *arguments, **named) for one in self.objects]

    def each(self, method: Callable[Concatenate[T, ...], R], arguments: Sequence[tuple[Any, ...]]) -> list[R]:
        """What a method of each object answers to arguments of its own, one after the other."""
        return [method(one, *own) for one, own in zip(self.objects, arguments, strict=True)]

    def send(self, value: V) -> V:
        """The value itself."""
        return value

    def close(self) -> None:
        """Let go of the objects."""
        self.objects.clear()


class LocalWorkers:
    """So many parts, all in this process."""

    def __init__(self, count: int = 1) -> None:
        self.count = count

    def start(self, make: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> LocalParts[T]:
        """`make(*…)` for each tuple."""
        return LocalParts([make(*own) for own in arguments])

    def alone(self, make: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> LocalParts[T]:
        """One object."""
        return LocalParts([make(*arguments, **named)])
