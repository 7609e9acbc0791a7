"""Goals of a benchmark: what was asked, what came out, and whether that is enough."""

from dataclasses import dataclass
from typing import Literal

from benchmarks.tables import UNKNOWN


@dataclass(frozen=True)
class Goal:
    """What was asked, what came out, the limit, whether that is `least` or `most`, and what else was seen.

    >>> Goal("answers a second", 12.0, 10, "least").row()
    ['answers a second', '12', 'at least 10', 'met', '']
    >>> Goal("seconds until whole again", None, 30, "most", "nothing was lost").row()[1:4]
    ['-', 'at most 30', 'not measured']
    """

    title: str
    value: float | None
    """None where nothing happened that could be measured: the goal is then not met."""
    limit: float
    kind: Literal["least", "most"]
    seen: str = ""

    @property
    def met(self) -> bool:
        """Whether what came out is within the limit."""
        if self.value is None:
            return False
        return self.value >= self.limit if self.kind == "least" else self.value <= self.limit

    def row(self) -> list[str]:
        """A line of the table."""
        value = UNKNOWN if self.value is None else f"{self.value:.3g}"
        verdict = "not measured" if self.value is None else "met" if self.met else "MISSED"
        return [self.title, value, f"at {self.kind} {self.limit:g}", verdict, self.seen]
