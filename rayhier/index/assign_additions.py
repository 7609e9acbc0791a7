"""Put new documents into leaves; documents whose leaf is full move to the next-best leaf with room."""

import numpy as np
import pyarrow as pa

from rayhier.index import leaf_limit
from rayhier.index.assign import Assigner, leaf_counts
from rayhier.index.find import find, per_leaf
from rayhier.model.encoded import Encoded
from rayhier.storage.leaf_map import LeafMap


class Filling:
    """Counts the rows of each leaf while documents are added to a version, so that no leaf becomes too large.

    A leaf may hold `factor` times the mean rows of a leaf. Documents that replace others count twice until the old rows
    are looked up; the look-up reads all ids, so it waits until a leaf might be full. Concurrent writers count
    separately.
    """

    def __init__(self, base: LeafMap, assign: Assigner, factor: float, *, replace: bool) -> None:
        self._base, self._assign, self._factor, self._replace = base, assign, factor, replace
        self._size_L = np.array(base.manifest.counts)
        # `_least` is the least number of rows; `_doubtful` are ids whose replaced rows may still be counted.
        self._least = int(self._size_L.sum())
        self._doubtful: list[pa.Array] = []
        self.moved = 0
        """Number of rows that moved to a next-best leaf because their best leaf was full."""

    def take(self, documents: pa.Table, encoded: Encoded, ids: pa.Array) -> pa.Table:
        """Route documents and count their rows; returns the rows of the leaf map. InputError where no leaf has room.

        `ids` are the ids that users know: of a passage, its document's.
        """
        table = self._assign(documents, encoded)
        count_L = self._counts(table)
        if self._replace:
            self._doubtful.append(ids)
            if (count_L > self._room(count_L)).any():
                self._look_up()
        room_L = self._room(count_L)
        over_L = count_L > room_L
        if over_L.any():
            (rows,) = leaf_limit.excess([table], count_L, room_L)
            # Over-full leaves are filled by their own rows; only other leaves have room for moved rows.
            table = leaf_limit.move(self._assign.router, table, rows, np.where(over_L, 0, room_L - count_L))
            count_L, self.moved = self._counts(table), self.moved + len(rows)
        self._size_L += count_L
        if not self._doubtful:
            self._least = int(self._size_L.sum())
        return table

    def _counts(self, table: pa.Table) -> np.ndarray:
        return np.array(leaf_counts(table["leaf"].to_numpy(), len(self._size_L)))

    def _room(self, count_L: np.ndarray) -> np.ndarray:
        """Rows of a batch that each leaf can still take; `count_L` are the rows of the batch in each leaf."""
        rows = self._least if self._doubtful else int(self._size_L.sum() + count_L.sum())
        return np.asarray(
            np.maximum(leaf_limit.most_rows(rows, self._base.manifest.leaves, self._factor) - self._size_L, 0)
        )

    def _look_up(self) -> None:
        rows = find(self._base, pa.concat_arrays(self._doubtful))
        self._size_L -= per_leaf(rows, len(self._size_L))
        self._doubtful.clear()
