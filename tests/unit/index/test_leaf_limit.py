"""A hard cap on leaves: the likeliest stay, the others go to their next-best leaf with room, nothing is lost."""

import numpy as np
import pytest

from rayhier.index import leaf_limit
from rayhier.index.assign import leaf_sizes
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError

from .conftest import L, M, documents, unit


def crowded(assign, n, seed=0, pull=4.0):
    """Rows of documents of which many are drawn to the first centroid."""
    centroid = assign.router.cells.centroid_LM[0]
    vectors = unit(seed, n, M) + pull * centroid * (np.arange(n) % 2)[:, None].astype(np.float32)
    return assign(
        documents([f"d{row:03d}" for row in range(n)]),
        Encoded(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)),
    )


def sizes(table):
    return leaf_sizes(table, L)


def capped(assign, table, most):
    """Rows that had to go, and the table after that."""
    (rows,) = leaf_limit.excess([table], sizes(table), np.full(L, most))
    return rows, leaf_limit.move(assign.router, table, rows, np.maximum(most - sizes(table), 0))


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_no_leaf_is_fuller_than_the_cap_and_no_row_is_lost(assign, factor):
    table = crowded(assign, 300)
    most = leaf_limit.most_rows(table.num_rows, L, factor)
    assert sizes(table).max() > most
    gone, after = capped(assign, table, most)
    in_parts = leaf_limit.excess([table[:100], table[100:]], sizes(table), np.full(L, most))
    assert sorted([*in_parts[0], *(in_parts[1] + 100)]) == sorted(gone), "however rows are cut into parts"
    assert sizes(after).max() <= most
    before, found = ({(row["doc_id"], row["rank"]): row for row in one.to_pylist()} for one in (table, after))
    assert before.keys() == found.keys()
    assert (after.num_rows, after.schema) == (table.num_rows, table.schema)
    changed = sizes(table) - sizes(after)
    assert changed[changed > 0].sum() == len(gone)
    for leaf in np.flatnonzero(sizes(table) > most):  # the likeliest stay
        rows = [row for row in before.values() if row["leaf"] == leaf]
        for row in sorted(rows, key=lambda row: (-row["log_prob"], row["doc_id"], row["rank"]))[:most]:
            assert found[row["doc_id"], row["rank"]]["leaf"] == leaf
    for (name, rank), row in found.items():
        assert row["leaves"][rank] == row["leaf"]
        assert row["leaves"] == found[name, 0]["leaves"]
        assert len(set(row["leaves"])) == len(row["leaves"])


def test_a_row_that_moves_takes_its_next_best_leaf_with_room(assign):
    table = crowded(assign, 60)
    most = 20
    rows, after = capped(assign, table, most)
    likelihood = assign.router.cells.centroid_LM
    room = np.maximum(most - sizes(table), 0)
    now = {(row["doc_id"], row["rank"]): row for row in after.to_pylist()}
    lies = {row["doc_id"]: set(row["leaves"]) for row in table.to_pylist()}
    for row in table.take(rows).to_pylist():
        order = np.argsort(-(likelihood @ np.array(row["vector"])), kind="stable")
        wanted = next(leaf for leaf in order if room[leaf] > 0 and leaf not in lies[row["doc_id"]])
        moved = now[row["doc_id"], row["rank"]]
        assert moved["leaf"] == wanted
        leaf_1L, log_prob_1L = assign.router.place(Encoded(np.array([row["vector"]], np.float32)), L)
        own = dict(zip(leaf_1L[0].tolist(), log_prob_1L[0].tolist(), strict=True))
        assert moved["log_prob"] == pytest.approx(own[wanted], abs=1e-5)
        room[wanted] -= 1
        lies[row["doc_id"]] = lies[row["doc_id"]] - {row["leaf"]} | {wanted}


def test_no_room_at_all_is_an_error(assign):
    table = crowded(assign, 30)
    with pytest.raises(InputError, match="no leaf has room for"):
        leaf_limit.move(assign.router, table, np.arange(3), np.zeros(L, int))
