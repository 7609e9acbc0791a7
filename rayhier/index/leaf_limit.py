"""A limit on leaf sizes: further rows move to the next-best leaf. Shapes: A rows, L leaves, C candidate leaves."""

import math
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from rayhier.arrays import Floats, Ints
from rayhier.index.assign import ORDER, Assigner, leaf_sizes, leaves_column
from rayhier.index.find import find
from rayhier.model.encoded import Encoded
from rayhier.model.opened_router import OpenedRouter
from rayhier.model.spill import CANDIDATES
from rayhier.spec import InputError
from rayhier.storage import columns
from rayhier.storage.leaf_map import LeafMap
from rayhier.storage.schemas import NODES

MOVED = 4096


def most_rows(rows: int, leaves: int, factor: float) -> int:
    """Return the most rows that a leaf may hold: `factor` times the mean rows of a leaf, rounded up.

    >>> most_rows(rows=1000, leaves=100, factor=1.25)
    13
    """
    return max(1, math.ceil(factor * rows / leaves))


def excess(tables: Iterable[pa.Table], size_L: Ints, room_L: Ints) -> list[Ints]:
    """Find each table's rows to move out of leaves with more than `room_L` [l] rows: the least probable, ties by id."""
    over_L = size_L > room_L
    candidates = [_held(part, number, over_L) for number, part in enumerate(tables)]
    best = [("leaf", "ascending"), ("log_prob", "descending"), ("doc_id", "ascending"), ("rank", "ascending")]
    rows = pa.concat_tables(candidates).sort_by(best)
    leaf_A, part_A, row_A = (rows[name].to_numpy() for name in ("leaf", "part", "row"))
    place_A = np.arange(len(leaf_A)) - np.searchsorted(leaf_A, leaf_A)  # place within its leaf, most probable first
    moved_A = place_A >= room_L[leaf_A]
    return [row_A[moved_A & (part_A == number)] for number in range(len(candidates))]


def _held(part: pa.Table, number: int, over_L: np.ndarray) -> pa.Table:
    rows = np.flatnonzero(over_L[part["leaf"].to_numpy()])
    rows_held = part.select(["doc_id", "leaf", "rank", "log_prob"]).take(pa.array(rows))
    return rows_held.append_column("part", [np.full(len(rows), number)]).append_column("row", [rows])


def within(router: OpenedRouter, table: pa.Table, size_L: Ints, most: int) -> tuple[pa.Table, int]:
    """Move new rows to their next-best leaf if a leaf would hold more than `most` rows.

    `size_L` [l] counts the rows that leaves hold already. Returns the new rows with their leaves, and how many moved.
    """
    count_L, room_L = leaf_sizes(table, len(size_L)), np.maximum(most - size_L, 0)
    over_L = count_L > room_L
    if not over_L.any():
        return table, 0
    (rows,) = excess([table], count_L, room_L)
    # Over-full leaves are filled by their own rows, so only other leaves have room for moved rows.
    return move(router, table, rows, np.where(over_L, 0, room_L - count_L)), len(rows)


def move(router: OpenedRouter, table: pa.Table, rows: Ints, room_L: Ints) -> pa.Table:
    """Move `rows` to their next-best leaf with room, and reduce `room_L` by them. InputError if no leaf has room."""
    leaf_A, rank_A, log_prob_A = (table[name].to_numpy().copy() for name in ("leaf", "rank", "log_prob"))
    document_A = table["doc_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    leaf_D2 = np.full((document_A.max(initial=-1) + 1, 2), -1, dtype=np.int64)
    leaf_D2[document_A, rank_A] = leaf_A
    for begin in range(0, len(rows), MOVED):
        part = rows[begin : begin + MOVED]
        near = _near(router, table, part, document_A, rank_A)
        few = near(slice(None), min(CANDIDATES, router.n_leaves))
        for number, row in enumerate(part.tolist()):
            taken = leaf_D2[document_A[row]]
            free = _free(few[0][number], few[1][number], room_L, taken)
            if free is None:
                all_leaves = near(slice(number, number + 1), router.n_leaves)
                free = _free(all_leaves[0][0], all_leaves[1][0], room_L, taken)
            if free is None:
                name = repr(table["doc_id"][row].as_py())
                raise InputError(f"no leaf has room for {name}; allowed: fewer leaves in the router")
            leaf_D2[document_A[row], rank_A[row]] = leaf_A[row] = free[0]
            log_prob_A[row] = free[1]
            room_L[free[0]] -= 1
    columns = {"leaf": pa.array(leaf_A), "log_prob": pa.array(log_prob_A)}
    columns["leaves"] = leaves_column(leaf_D2[document_A], leaf_D2[document_A, 1] >= 0)
    for name, column in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table.sort_by(ORDER)


def _near(
    router: OpenedRouter, table: pa.Table, row_A: Ints, document_A: Ints, rank_A: Ints
) -> Callable[[slice, int], tuple[Ints, Floats]]:
    if NODES in table.column_names:
        first_D = np.zeros(document_A.max() + 1, dtype=np.int64)
        first_D[document_A[rank_A == 0]] = np.flatnonzero(rank_A == 0)
        stored_nodes = table[NODES].take(pa.array(first_D[document_A[row_A]]))
        log_prob_AL = np.log(np.maximum(2 * columns.matrix(stored_nodes) / router.n_leaves, np.finfo(np.float32).tiny))

        def stored(rows: slice, count: int) -> tuple[Ints, Floats]:
            leaf_AC = np.argsort(-log_prob_AL[rows], axis=1, kind="stable")[:, :count]
            return leaf_AC, np.take_along_axis(log_prob_AL[rows], leaf_AC, axis=1)

        return stored
    vector_AM = columns.matrix(table["vector"].take(pa.array(row_A)))

    def routed(rows: slice, count: int) -> tuple[Ints, Floats]:
        return router.place(Encoded(vector_AM[rows]), count)

    return routed


def _free(leaf_C: Ints, log_prob_C: Floats, room_L: Ints, own_2: Ints) -> tuple[int, float] | None:
    """Return the first candidate leaf [c] of a document that has room and is not its leaf, and the log-probability."""
    free = np.flatnonzero((room_L[leaf_C] > 0) & np.isfinite(log_prob_C) & ~np.isin(leaf_C, own_2))
    return (int(leaf_C[free[0]]), float(log_prob_C[free[0]])) if len(free) else None


class Filling:
    """Counts rows of leaves while documents are added, so that a leaf holds at most `factor` times the mean."""

    def __init__(self, base: LeafMap, assign: Assigner, factor: float, *, replace: bool) -> None:
        self._base, self._assign, self._factor, self._replace = base, assign, factor, replace
        self._size_L, self.moved = np.array(base.manifest.counts), 0

    def take(self, documents: pa.Table, encoded: Encoded, ids: pa.Array) -> pa.Table:
        """Route documents and count their rows. `ids` are the documents' ids, as users give them."""
        table = self._assign(documents, encoded)
        if self._replace:
            self._size_L -= leaf_sizes(find(self._base, ids), len(self._size_L))
        most = most_rows(int(self._size_L.sum()) + table.num_rows, self._base.manifest.leaves, self._factor)
        table, moved = within(self._assign.router, table, self._size_L, most)
        self.moved += moved
        self._size_L += leaf_sizes(table, len(self._size_L))
        return table
