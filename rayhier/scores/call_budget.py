"""Budgeted search: in rounds, read the documents with the best estimates from earlier scores (Algorithm 1 of AXN).

The scorer may be anything that scores pairs of a query and a document, by their numbers. The budget is exact, and no
pair is read twice.
"""

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeVar

import numpy as np

from rayhier.arrays import Floats, Ints, Values
from rayhier.scores.estimators import Fit

P = TypeVar("P")
S = TypeVar("S")
T = TypeVar("T")
LARGEST = 1e30
"""Largest score, so that no sum of squares of scores is infinite."""
Score = Callable[[Ints, Ints], Floats | Values]
"""Queries [n] and rows [n] of their pools -> scores [n] of the pairs."""
Asking = Generator[tuple[Ints, Ints], object, list["Spent"]]
"""Yields the pairs of each round, queries [n] and rows [n], receives their scores, and returns all results."""


class ScorerError(RuntimeError):
    """The scorer failed: it raised, took too long, or did not return a finite score for each pair."""


@dataclass(frozen=True)
class Asked:
    """A query: the scores that order its first round, and the fit that estimates scores from others."""

    first_P: Values
    """Scores [p] whose order the first round follows."""
    fit: Fit


@dataclass(frozen=True)
class Spent:
    """Result of a query's calls: every document of its pool, read ones by score, then the others by estimate."""

    row_P: Ints
    """Rows [p] of the pool, best first: the documents read by score, then the others by estimate."""
    score_P: Values
    """Scores [p] of the rows in `row_P`; those after the first `calls` are estimates."""
    calls: int
    """Number of documents read."""


@dataclass(frozen=True)
class Spending:
    """Rules for a query's calls: budget, rounds and time; a call of this object runs them."""

    budget: int
    """Calls of a query."""
    rounds: int = 5
    """Rounds that divide the calls equally; the last has the remainder too."""
    seconds: float | None = None
    """Time that the scorer may take for a round of all queries; None: any."""

    def __post_init__(self) -> None:
        """Raise ValueError where there are fewer calls than rounds, or no round."""
        if self.rounds < 1 or self.budget < self.rounds:
            raise ValueError(
                f"budget: got {self.budget} calls in {self.rounds} rounds; allowed: at least one round, and a call each"
            )

    def __call__(self, score: Score, queries: Sequence[Asked]) -> list[Spent]:
        """Spend the calls of every query; all queries' pairs of a round are scored together.

        Where a pool has fewer documents than the budget allows calls, all of them are read. ScorerError where the
        scorer fails.
        """
        return run_sync(self.asking(queries), lambda pairs: within(self.seconds, lambda: score(*pairs)))

    def asking(self, queries: Sequence[Asked]) -> Asking:
        """Spend the calls of every query, with scores that the caller sends for each round's pairs."""
        states = [_State(query) for query in queries]
        each = self.budget // self.rounds
        for number in range(self.rounds):
            last = number == self.rounds - 1
            picks = [state.pick(self.budget - state.calls if last else each) for state in states]
            row_N = np.concatenate([np.zeros(0, np.int64), *picks])
            if not len(row_N):
                continue
            query_N = np.repeat(np.arange(len(picks)), [len(pick) for pick in picks])
            score_N = checked((yield query_N, row_N), len(row_N))
            ends = np.cumsum([len(pick) for pick in picks])[:-1]
            for state, pick, own_S in zip(states, picks, np.split(score_N, ends), strict=True):
                state.add(pick, own_S)
        return [state.spent() for state in states]


class _State:
    """What was read for one query."""

    def __init__(self, query: Asked) -> None:
        self.asked = query
        self.read_S, self.score_S = np.zeros(0, np.int64), np.zeros(0)
        self._estimated: Values | None = None

    @property
    def calls(self) -> int:
        return len(self.read_S)

    def estimate(self) -> Values:
        """What all documents are expected to score, by what was read; computed once after each round."""
        if not self.calls:
            return self.asked.first_P
        if self._estimated is None:
            self._estimated = self.asked.fit.estimate(self.read_S, self.score_S)
        return self._estimated

    def pick(self, count: int) -> Ints:
        """The best unread documents, at most `count`, ties by row."""
        estimate_P = self.estimate().astype(np.float64, copy=True)
        estimate_P[self.read_S] = -np.inf
        left = min(count, len(estimate_P) - self.calls)
        return np.asarray(np.argsort(-estimate_P, kind="stable")[:left])

    def add(self, row_S: Ints, score_S: Values) -> None:
        """Note the scores of documents."""
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
    """Run a generator to its end, sending `answer(value)` for each value that it yields; returns its result."""
    try:
        question = next(asking)
        while True:
            question = asking.send(answer(question))
    except StopIteration as end:
        result: T = end.value
        return result


def checked(answer: object, count: int) -> Values:
    """Convert scores to float64 [count]; ScorerError where `answer` is anything but `count` finite scores."""
    try:
        score_N = np.asarray(answer)
        if score_N.dtype.kind not in "fiu":
            raise TypeError("no numbers")
        score_N = score_N.astype(np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ScorerError(
            f"the scorer answered with {type(answer).__name__}; allowed: a number for each pair"
        ) from error
    if score_N.shape != (count,):
        raise ScorerError(f"the scorer answered with shape {list(score_N.shape)}; allowed: one score for {count} pairs")
    finite_N = np.abs(score_N) <= LARGEST
    if not finite_N.all():
        raise ScorerError(
            f"the scorer answered {int((~finite_N).sum())} of {count} pairs with no finite number; allowed: finite "
            f"scores of at most {LARGEST:g}"
        )
    return score_N


def within(seconds: float | None, call: Callable[[], object]) -> object:
    """Return the result of a call; ScorerError where it raises or takes longer than `seconds` (None: no limit)."""
    try:
        if seconds is None:
            return call()
        answers: SimpleQueue[tuple[object, BaseException | None]] = SimpleQueue()

        def answer() -> None:
            try:
                answers.put((call(), None))
            except BaseException as error:  # noqa: BLE001  raised again by the caller
                answers.put((None, error))

        thread = threading.Thread(target=answer, name="scorer", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            raise ScorerError(f"the scorer took longer than {seconds:g} s for one round")
        result, failed = answers.get_nowait()
        if failed is not None:
            raise failed
    except ScorerError:
        raise
    except Exception as error:
        raise ScorerError(f"the scorer failed: {error}") from error
    return result
