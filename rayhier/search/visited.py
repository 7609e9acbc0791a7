"""Counts the documents of the leaves that queries visit: a document that lies in two of a query's leaves counts once.

Shapes: N rows, L lists, G groups of rows, Q queries, B leaves visited, R leaves of lower rank.
"""

from dataclasses import dataclass

import numpy as np

from rayhier.arrays import Bools, Ints

COUNTED = 4_000_000
"""Approximate number of groups of rows that are counted at a time."""


class Places:
    """Positions of leaves among some leaves, for instance those that one file holds."""

    def __init__(self, leaf_L: Ints, place_L: Ints | None = None) -> None:
        """Take the numbers of the leaves [l], in ascending order, and their positions [l], None: 0, 1, 2 and so on."""
        # The first and the last entry stay -1: leaves below and above the range are looked up there.
        self._before = int(leaf_L[0]) - 1 if len(leaf_L) else 0
        self._place = np.full(int(leaf_L[-1]) - self._before + 2 if len(leaf_L) else 1, -1)
        self._place[leaf_L - self._before] = np.arange(len(leaf_L)) if place_L is None else place_L

    def __call__(self, leaves: Ints) -> Ints:
        """Return each leaf's position among the leaves that the constructor took; -1 for any other leaf."""
        return self._place.take(leaves - self._before, mode="clip")


@dataclass(frozen=True)
class Repeats:
    """Rows of documents' further leaves (rank above 0), in groups: of one list, and with the same leaves of lower rank.

    A group's documents are not counted where one of these leaves is visited too.
    """

    rows: int
    """Number of rows of rank above 0."""
    begin_L: Ints
    """Begin of each list's groups in `lower_GR`; the last entry is the number of groups."""
    leaves: int
    """Number of distinct leaves of lower rank."""
    place: Places
    """Positions of the leaves of lower rank."""
    lower_GR: Ints
    """Positions of each group's leaves of lower rank; -1 where it has fewer."""
    size_G: Ints
    """Number of rows of each group."""

    @classmethod
    def of(cls, list_N: Ints, lower_NR: Ints, n_lists: int, mask_N: Bools | None = None) -> "Repeats":
        """Take the rows of rank above 0: of all rows, or of those where a mask [n] is True."""
        again_N = (lower_NR >= 0).any(axis=1)
        rows = np.flatnonzero(again_N if mask_N is None else again_N & mask_N)
        leaf_U = np.unique(lower_NR[rows])
        place = Places(leaf_U[leaf_U >= 0].astype(np.int64))
        key_AC = np.concatenate([list_N[rows, None], place(lower_NR[rows])], axis=1)
        order = np.lexsort(key_AC.T[::-1])
        key_AC = key_AC[order]
        new_A = np.ones(len(rows), bool)
        new_A[1:] = (key_AC[1:] != key_AC[:-1]).any(axis=1)
        first_G = np.flatnonzero(new_A)
        size_G = np.diff(np.append(first_G, len(rows)))
        counts = np.bincount(key_AC[first_G, 0], minlength=n_lists)
        begin_L = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(len(rows), begin_L, int((leaf_U >= 0).sum()), place, key_AC[first_G, 1:], size_G)

    def count(self, list_QB: Ints, leaves_QB: Ints) -> Ints:
        """Count the rows [q] in each query's lists whose document another of its leaves holds at a lower rank."""
        size_QB = np.where(list_QB < 0, 0, self.begin_L[list_QB + 1] - self.begin_L[list_QB])
        if size_QB.sum() <= COUNTED:
            return self._count(list_QB, size_QB, leaves_QB)
        cuts = np.flatnonzero(np.diff(np.cumsum(size_QB.sum(axis=1)) // COUNTED)) + 1
        parts = (np.split(array_QB, cuts) for array_QB in (list_QB, size_QB, leaves_QB))
        return np.concatenate([self._count(*part) for part in zip(*parts, strict=True)])

    def _count(self, list_QB: Ints, size_QB: Ints, leaves_QB: Ints) -> Ints:
        q, width = len(leaves_QB), self.leaves + 1
        query_P, probe_P = np.nonzero(size_QB)
        if not len(query_P):
            return np.zeros(q, dtype=np.int64)
        # A flat table with a row a query. Position -1 points to the last column of the row before, which stays False.
        probed = np.zeros(q * width, dtype=bool)
        probed[self.place(leaves_QB) + width * np.arange(q)[:, None]] = True
        probed[width - 1 :: width] = False
        size_P, begin_P = size_QB[query_P, probe_P], self.begin_L[list_QB[query_P, probe_P]]
        end_P = np.cumsum(size_P)
        group_A = np.arange(end_P[-1]) + np.repeat(begin_P - end_P + size_P, size_P)
        first_A = np.repeat(width * query_P, size_P)
        again_A = probed[self.lower_GR[group_A] + first_A[:, None]].any(axis=1)
        size_A = self.size_G[group_A[again_A]]
        return np.bincount(first_A[again_A] // width, weights=size_A, minlength=q).astype(np.int64)
