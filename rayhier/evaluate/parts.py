"""Where the parts of an evaluation live: in this process, or, in ray.py, in many."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rayhier.cluster.library import faiss

Make = Callable[..., Any]


class Parts(Protocol):
    """Objects of one kind, each in some process."""

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """What a method of each object answers to the same arguments."""
        ...

    def each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The same, each object with its own arguments."""
        ...

    def send(self, value: Any) -> Any:
        """A stand-in for a value that several calls are given."""
        ...

    def close(self) -> None:
        """Let go of the objects."""
        ...


class Workshop(Protocol):
    """Makes parts."""

    workers: int
    """Processes at most."""

    def start(self, make: Make, arguments: Sequence[tuple[Any, ...]]) -> Parts:
        """`make(*…)` for each tuple, at most `workers` of them."""
        ...

    def alone(self, make: Make, *arguments: Any) -> Parts:
        """One object in a process of its own."""
        ...


class Holder:
    """What one process of several is: objects by number, whose methods it calls.

    An actor imports the module of its class, so it stands here, where little else is imported.
    """

    def __init__(self, cpus: int) -> None:
        faiss.omp_set_num_threads(cpus)
        self.objects: dict[int, Any] = {}

    def make(self, number: int, make: Make, arguments: tuple[Any, ...]) -> None:
        """Hold `make(*arguments)`."""
        self.objects[number] = make(*arguments)

    def call(self, number: int, method: str, *arguments: Any) -> Any:
        """Call a method of a held object."""
        return getattr(self.objects[number], method)(*arguments)

    def drop(self, number: int) -> None:
        """Let go of an object."""
        self.objects.pop(number, None)


class HereParts:
    """Parts in this process."""

    def __init__(self, objects: Sequence[Any]) -> None:
        self.objects = list(objects)

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """One object after the other."""
        return [getattr(one, method)(*arguments) for one in self.objects]

    def each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """One object after the other."""
        return [getattr(one, method)(*own) for one, own in zip(self.objects, arguments, strict=True)]

    def send(self, value: Any) -> Any:
        """The value itself."""
        return value

    def close(self) -> None:
        """Let go of the objects."""
        self.objects.clear()


class Here:
    """Everything in this process, in so many parts."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers

    def start(self, make: Make, arguments: Sequence[tuple[Any, ...]]) -> HereParts:
        """`make(*…)` for each tuple."""
        return HereParts([make(*own) for own in arguments])

    def alone(self, make: Make, *arguments: Any) -> HereParts:
        """One object."""
        return HereParts([make(*arguments)])
