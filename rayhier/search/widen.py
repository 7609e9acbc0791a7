"""A query that finds too few documents visits twice as many leaves again and again, until it has enough, or all.

Enough documents are k; with a filter also as many as the query's first leaves hold on average: a filter changes which
documents are scored, not their number. With k as the only goal a query would stop at the first k matches; nearer ones
lie in further leaves.

A caller scans the leaves to visit next, and adds the results:

    widening = Widening(leaves_QB, Goal.of(k, beam, leaves, rows, widest))
    while True:
        widening.add_results(scan(queries[widening.asked_A], widening.leaves))
        if widening.done:
            break
        widening.visit(route(queries[widening.asked_A], widening.wider))
    ranking, leaves_QB = widening.ranking, widening.leaves_QB

A query is scanned again in all its leaves, not only in the new ones: a document may lie in an old and in a new leaf and
is counted once. Its earlier scans add to `scanned`; together they cost about as much as the last.

Shapes: Q queries, A queries that are searched again, B leaves visited, K results.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from rayhier.arrays import Bools, Ints
from rayhier.dataset.ranking import Ranking, compact, padded, repeated, take


@dataclass(frozen=True)
class Goal:
    """The numbers of results and documents at which a search ends, and the most leaves that it visits."""

    k: int
    """Number of results wanted."""
    beam: int
    """Number of leaves that a query visits at first."""
    matching: int
    """Number of matching documents that must have been scored for a query."""
    widest: int
    """Most leaves that a query visits, where these are more than `beam`."""
    jumps: bool = False
    """True where a query that goes on visits the most leaves at once."""

    @classmethod
    def of(cls, k: int, beam: int, leaves: int, rows: int, widest: int) -> Self:
        """Make a filtered search's goal: as many matches as `beam` leaves have documents on average, but at least k.

        >>> Goal.of(k=10, beam=4, leaves=100, rows=1000, widest=100).matching
        40
        """
        return cls(k, beam, max(k, round(beam * rows / leaves)), widest)


class Widening:
    """A search of q queries in progress: results so far, leaves visited, and queries to scan again."""

    def __init__(self, leaves_QB: Ints, goal: Goal) -> None:
        """Begin with the leaves [q, β] of each query, at most the goal's `beam`."""
        self.leaves_QB, self.beam = leaves_QB, goal.beam
        self.asked_A: Ints = np.arange(len(leaves_QB))
        """Numbers of the queries to scan next."""
        self._goal = goal
        self._ranking: Ranking | None = None

    @property
    def leaves(self) -> Ints:
        """Leaves [a, β] to scan next, for the queries numbered in `asked_A`."""
        return self.leaves_QB[self.asked_A]

    @property
    def ranking(self) -> Ranking:
        """Results of each query so far, with the cost of all scans."""
        return Ranking.none(len(self.leaves_QB)) if self._ranking is None else self._ranking

    @property
    def done(self) -> bool:
        """True where every query has enough documents, or no further leaves may be visited."""
        return not len(self.asked_A) or self.beam >= self._goal.widest

    def add_results(self, ranking: Ranking, stopped_A: Bools | None = None) -> None:
        """Add the ranking of the queries in `asked_A`; queries marked in `stopped_A` [a] visit no further leaves."""
        self._ranking = ranking if self._ranking is None else _replaced(self._ranking, self.asked_A, ranking)
        few_A = (ranking.row_QK >= 0).sum(axis=1) < self._goal.k
        lacking_A = few_A | (ranking.visited_Q < self._goal.matching)
        self.asked_A = self.asked_A[lacking_A if stopped_A is None else lacking_A & ~stopped_A]

    @property
    def wider(self) -> int:
        """Number of leaves that each query in `asked_A` visits next."""
        return max(self.beam, self._goal.widest if self._goal.jumps else min(2 * self.beam, self._goal.widest))

    def visit(self, leaves_AB: Ints) -> None:
        """Add `leaves_AB` [a, wider], for the queries in `asked_A`, to the leaves that they visited before."""
        self.beam = self.wider
        joined_AB = np.concatenate([self.leaves, leaves_AB], axis=1)
        joined_AB = np.where(repeated(joined_AB), -1, joined_AB)
        joined_AB = take(joined_AB, np.argsort(joined_AB < 0, axis=1, kind="stable"))
        joined_AB = joined_AB[:, : int((joined_AB >= 0).sum(axis=1).max(initial=0))]
        self.leaves_QB = padded(self.leaves_QB, joined_AB.shape[1], -1)
        self.leaves_QB[self.asked_A, : joined_AB.shape[1]] = joined_AB


def _replaced(before: Ranking, asked_A: Ints, after: Ranking) -> Ranking:
    """Replace some queries' results in a ranking by later ones; the numbers of rows scanned add up."""
    width, begin = after.row_QK.shape[1], before.documents.num_rows
    score_QK, row_QK = padded(before.score_QK, width, -np.inf), padded(before.row_QK, width, -1)
    score_QK[asked_A], row_QK[asked_A] = -np.inf, -1
    score_QK[asked_A, :width] = after.score_QK
    row_QK[asked_A, :width] = np.where(after.row_QK >= 0, after.row_QK + begin, -1)
    visited_Q, scanned_Q, leaves_Q = before.visited_Q.copy(), before.scanned_Q.copy(), before.leaves_Q.copy()
    visited_Q[asked_A], leaves_Q[asked_A] = after.visited_Q, after.leaves_Q
    scanned_Q[asked_A] += after.scanned_Q
    documents = pa.concat_tables([before.documents, after.documents], promote_options="default")
    return Ranking(*compact(score_QK, row_QK, documents), visited_Q, scanned_Q, leaves_Q)
