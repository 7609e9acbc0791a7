"""Re-rank by a cross-encoder within a budget of calls, in rounds that read the best estimates (Algorithm 1 of AXN)."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rayhier.arrays import Ints, Values
from rayhier.scores.estimators import Fit

P = TypeVar("P")
S = TypeVar("S")
T = TypeVar("T")
LARGEST = 1e30
"""Largest score allowed, so that no sum of squares of scores is infinite."""
Asking = Generator[tuple[Ints, Ints], object, list["Spent"]]
"""Generator that yields each round's queries [n] and rows [n], is sent the pairs' scores, and returns results."""


class ScorerError(RuntimeError):
    """The scorer failed: it raised, took too long, or did not return a finite score for each pair."""


@dataclass(frozen=True)
class Asked:
    first_P: Values
    fit: Fit


@dataclass(frozen=True)
class Spent:
    """The result for a query: all documents of its pool. Documents that the cross-encoder read come first."""

    row_P: Ints
    score_P: Values
    calls: int


def spending(queries: Sequence[Asked], budget: int, rounds: int) -> Asking:
    """Spend a budget of calls for each query. Yields each round's pairs, and is sent their scores.

    All rounds have equally many calls, and the last round also has the remainder. ValueError if there are fewer calls
    than rounds. ScorerError if the scores sent are not one finite score for each pair.
    """
    if rounds < 1 or budget < rounds:
        raise ValueError(f"budget: got {budget} calls in {rounds} rounds; allowed: at least one round, one call each")
    states, each = [_State(query) for query in queries], budget // rounds
    for number in range(rounds):
        last = number == rounds - 1
        picks = [state.pick(budget - state.calls if last else each) for state in states]
        row_N = np.concatenate([np.zeros(0, np.int64), *picks])
        if not len(row_N):
            continue
        query_N = np.repeat(np.arange(len(picks)), [len(pick) for pick in picks])
        score_N = checked((yield query_N, row_N), len(row_N))
        ends = np.cumsum([len(pick) for pick in picks])[:-1]
        for state, pick, scored_S in zip(states, picks, np.split(score_N, ends), strict=True):
            state.add(pick, scored_S)
    return [state.spent() for state in states]


class _State:
    def __init__(self, query: Asked) -> None:
        self.asked = query
        self.read_S, self.score_S = np.zeros(0, np.int64), np.zeros(0)
        self._estimated: Values | None = None

    @property
    def calls(self) -> int:
        return len(self.read_S)

    def estimate(self) -> Values:
        if not self.calls:
            return self.asked.first_P
        if self._estimated is None:
            self._estimated = self.asked.fit.estimate(self.read_S, self.score_S)
        return self._estimated

    def pick(self, count: int) -> Ints:
        estimate_P = self.estimate().astype(np.float64, copy=True)
        estimate_P[self.read_S] = -np.inf
        left = min(count, len(estimate_P) - self.calls)
        return np.asarray(np.argsort(-estimate_P, kind="stable")[:left])

    def add(self, row_S: Ints, score_S: Values) -> None:
        if len(row_S):
            self.read_S, self.score_S = np.append(self.read_S, row_S), np.append(self.score_S, score_S)
            self._estimated = None

    def spent(self) -> Spent:
        order_S = np.lexsort((self.read_S, -self.score_S))
        rest = self.pick(len(self.asked.first_P))
        estimate_P = self.estimate() if len(rest) else np.zeros(0)
        return Spent(
            np.concatenate([self.read_S[order_S], rest]),
            np.concatenate([self.score_S[order_S], estimate_P[rest] if len(rest) else estimate_P]),
            self.calls,
        )


def run_sync(asking: Generator[P, S, T], answer: Callable[[P], S]) -> T:
    """Run a generator to its end, sending it `answer(value)` for each value, and return its result."""
    try:
        question = next(asking)
        while True:
            question = asking.send(answer(question))
    except StopIteration as end:
        result: T = end.value
        return result


def checked(answer: object, count: int) -> Values:
    """Convert a scorer's answer to float64 [count]. ScorerError unless it is `count` finite numbers."""
    try:
        score_N = np.asarray(answer)
        if score_N.dtype.kind not in "fiu":
            raise TypeError("no numbers")
        score_N = score_N.astype(np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ScorerError(f"the scorer answered with {type(answer).__name__}; allowed: a number per pair") from error
    if score_N.shape != (count,):
        raise ScorerError(f"the scorer answered with shape {list(score_N.shape)}; allowed: one score for {count} pairs")
    finite_N = np.abs(score_N) <= LARGEST
    if not finite_N.all():
        raise ScorerError(
            f"the scorer answered {int((~finite_N).sum())} of {count} pairs with no finite number; allowed: finite "
            f"scores of at most {LARGEST:g}"
        )
    return score_N
