"""Goals of a benchmark: what was asked, what came out, and whether that is enough."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from benchmarks.tables import UNKNOWN, table


def verdict(met: bool | None) -> str:
    """A word for whether a goal is met; None: nothing happened that could be measured."""
    return "not measured" if met is None else "met" if met else "MISSED"


@dataclass(frozen=True)
class Goal:
    """What was asked, what came out, the limit, whether that is `least` or `most`, and what else was seen."""

    title: str
    value: float | None
    """None where nothing happened that could be measured: the goal is then not met."""
    limit: float | None
    """None where the value is shown for comparison and nothing is asked of it."""
    kind: Literal["least", "most"] = "least"
    seen: str = ""

    @property
    def met(self) -> bool:
        """True where what came out is within the limit."""
        if self.value is None or self.limit is None:
            return False
        return self.value >= self.limit if self.kind == "least" else self.value <= self.limit

    @property
    def verdict(self) -> str:
        """A word for what came of it; none where nothing was asked."""
        return "" if self.limit is None else verdict(None if self.value is None else self.met)

    def row(self, form: str = ".3g") -> list[str]:
        """A row of a table, the value in a form."""
        value = UNKNOWN if self.value is None else f"{self.value:{form}}"
        limit = UNKNOWN if self.limit is None else f"at {self.kind} {self.limit:g}"
        return [self.title, value, limit, self.verdict, self.seen]

    def line(self) -> str:
        """A line of a terminal."""
        _, value, limit, word, _ = self.row()
        return f"{word:<6} {self.title}: {value} (asked {limit})"


def lines(goals: Iterable[Goal], seen: str = "", form: str = ".3f") -> list[str]:
    """A table of goals; with a heading for what else was seen, that too."""
    columns = 5 if seen else 4
    return table(["", "value", "limit", "", seen][:columns], [goal.row(form)[:columns] for goal in goals])
