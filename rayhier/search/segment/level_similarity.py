"""Similarity of queries and documents by their numbers at a level of ReTreever's tree, and the best rows by it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rayhier.arrays import Bools, Floats, Ints
from rayhier.dataset.ranking import Ranking, by_name, compact, joined, once, ordered, repeated, take
from rayhier.model.encoded import Encoded
from rayhier.model.layers import normalized
from rayhier.model.opened_router import UNREAD, Tree, at_level
from rayhier.spec import InputError
from rayhier.spec.search import SearchSpec
from rayhier.spec.train.retreever import Comparison


@dataclass(frozen=True)
class LevelSimilarity:
    """A rule that compares texts at a level of ReTreever's tree, by one number for each node of the level."""

    level: int
    comparison: Comparison
    offset_L: Floats | None = field(default=None, compare=False, repr=False)
    """Learned numbers [l] of leaves, added to a text's numbers before the cosine. None for total variation."""

    @classmethod
    def of(cls, search: SearchSpec, router: Tree) -> Self:
        """Make the similarity from a spec, which names the level, and from a trained router."""
        return cls(search.at_level(router.levels), router.similarity, router.offset_L)

    @property
    def numbers(self) -> str:
        return f"{2**self.level} numbers, level {self.level} of the tree"

    def level_of(self, stored_NL: npt.NDArray[Any], level: int) -> Floats:
        """Compute texts' numbers at a level h, [n, 2^h], from their leaf probabilities as stored [n, l]."""
        probability_NK = at_level(stored_NL, level)
        if self.comparison == "tv":
            return probability_NK
        centred_NK = probability_NK * 2**level - 1
        offset_K = 0 if self.offset_L is None else self.offset_L.reshape(2**level, -1).mean(axis=1)
        return normalized(centred_NK + offset_K)

    def even(self, query_QM: Floats) -> "FlatQuery":
        """Make queries that are equally probable in every leaf of a tree, with vectors [q, m] for rescoring."""
        return FlatQuery(np.full((len(query_QM), 2**self.level), 2.0**-self.level, np.float32), query_QM)

    def query(self, router: Tree, encoded: Encoded) -> "FlatQuery":
        """Compute queries' numbers in the same way as documents'. InputError if the router needs tokens."""
        if router.reader is not None and encoded.token_scores is None:
            raise InputError(f"vector: {UNREAD}")
        return FlatQuery(self.level_of(router.leaves(encoded), self.level), encoded.numpy)


@dataclass(frozen=True)
class FlatQuery:
    """Queries as numbers, for a search by a level of ReTreever's tree."""

    query_QK: Floats
    """Numbers [q, k] of the queries at the level."""
    vector_QM: Floats
    """Vectors [q, m] of the queries, which rescore the best documents."""

    def part(self, rows: slice) -> "FlatQuery":
        return FlatQuery(self.query_QK[rows], self.vector_QM[rows])


def ranked_again(shortlists: Sequence[Ranking], results: int, k: int) -> Ranking:
    """Merge the shortlists of all parts of an index, and return the best k results by vectors, ties by id.

    Of all shortlists, only the best `results` results by the level are ranked. A result counts by its best row.
    """
    documents, row_QF = joined([(part.source, part.row_QK) for part in shortlists])
    score_QF, again_QF = (
        np.concatenate([getattr(part, name) for part in shortlists], axis=1) for name in ("score_QK", "base_QK")
    )
    number_N = by_name(documents)
    place_QT, gone_QT = leading(score_QF, row_QF, number_N, results)
    again_QT = np.where(gone_QT, -np.inf, take(again_QF, place_QT))
    row_QT = np.where(gone_QT, -1, take(row_QF, place_QT))
    order_QT = ordered(again_QT, row_QT, number_N)
    best = once(take(again_QT, order_QT), take(row_QT, order_QT), number_N, k)
    visited_Q, scanned_Q, leaves_Q = (
        np.sum([getattr(part, name) for part in shortlists], axis=0) for name in ("visited_Q", "scanned_Q", "leaves_Q")
    )
    return Ranking(*compact(*best, documents), visited_Q, scanned_Q, leaves_Q)


def leading(score_QF: Floats, row_QF: Ints, number_N: Ints, results: int) -> tuple[Ints, Bools]:
    """Find the best rows that hold `results` results: places [q, t], and a mask [q, t] of places without a row.

    Rows [q, f] with equal numbers in `number_N` belong to one result. Row -1 is no row. Ties are in the numbers' order.

    >>> leading(np.array([[0.1, 0.4, 0.2, 0.3]]), np.array([[0, 1, 2, 3]]), np.array([0, 1, 2, 1]), 2)
    (array([[1, 3, 2]]), array([[False, False, False]]))
    """
    order_QF = ordered(score_QF, row_QF, number_N)
    result_QF = np.append(number_N, -1)[take(row_QF, order_QF)]
    new_QF = (result_QF >= 0) & ~repeated(result_QF)
    leading_QF = (result_QF >= 0) & (np.cumsum(new_QF, axis=1) - new_QF < results)
    most = int(leading_QF.sum(axis=1).max(initial=0))
    return order_QF[:, :most], ~leading_QF[:, :most]
