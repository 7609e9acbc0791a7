"""Further ways to spend a budget of calls: rounds of any size, GAR, and settings that are no end of what was tried."""

import numpy as np
import pytest

from benchmarks.axn.further import Chosen, System, gar, in_rounds, middle_best, sizes
from benchmarks.axn.rows import Row
from rayhier.scores.call_budget import Asked, run_sync, spending
from rayhier.scores.estimators import Fixed, Ridge

FIRST_N = -np.arange(6.0)
"""The first order is 0, 1, 2, 3, 4, 5."""
NEAR_NK = np.array([[4], [5], [3], [2], [0], [1]])


def test_gar_takes_turns_between_the_first_order_and_neighbours_of_the_best():
    score_N = np.array([1.0, 2.0, 9.0, 9.0, 3.0, 5.0])
    # 0 and 1 by the first order; then the neighbour of 1, which scores above 0: 5, and 4 of 0; then 2 by the order.
    assert gar(score_N, FIRST_N, NEAR_NK, 5, batch=2).tolist() == [2, 5, 4, 1, 0, 3]
    # Three calls: the frontier has one place left, and the neighbour of the better document gets it.
    assert gar(score_N, FIRST_N, NEAR_NK, 3, batch=2).tolist() == [5, 1, 0, 2, 3, 4]


def test_gar_goes_on_with_the_first_order_where_there_is_no_neighbour():
    score_N, none_NK = np.arange(6.0), np.zeros((6, 0), np.int64)
    assert gar(score_N, FIRST_N, none_NK, 4, batch=2).tolist() == [3, 2, 1, 0, 4, 5]


def test_gar_reads_no_more_than_its_calls_and_all_where_it_may():
    class Counted(np.ndarray):
        read: list[int]

        def __getitem__(self, row):
            self.read.append(row)
            return super().__getitem__(row)

    score_N = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 9.0]).view(Counted)
    for budget, calls in ((4, 4), (60, 6)):
        score_N.read = []
        order = gar(score_N, FIRST_N, NEAR_NK, budget, batch=4)
        assert sorted(order.tolist()) == list(range(6))
        assert len(score_N.read) == len(set(score_N.read)) == calls


@pytest.mark.parametrize(
    ("given", "half", "calls"),
    [((100, 5), False, [20] * 5), ((100, 5), True, [50, 12, 12, 12, 14]), ((7, 1), True, [7]), ((9, 2), True, [4, 5])],
)
def test_calls_of_every_round(given, half, calls):
    assert sizes(*given, half=half) == calls
    assert sum(calls) == given[0]


def test_rounds_of_equal_size_are_those_of_the_product():
    rng = np.random.default_rng(0)
    vector_PM = rng.normal(size=(80, 4)).astype(np.float32)
    score_P, first_P = vector_PM @ rng.normal(size=4), rng.normal(size=80)
    pool = Asked(first_P, Ridge(first_P, vector_PM))
    spent = run_sync(spending([pool], 23, 5), lambda pairs: score_P[pairs[1]])[0]
    order = in_rounds(score_P, pool, sizes(23, 5))
    assert order[:23].tolist() == spent.row_P[:23].tolist()
    assert sorted(order.tolist()) == list(range(80))


def test_one_round_reads_the_first_order():
    score_P = np.array([1.0, 5.0, 2.0, 9.0])
    order = in_rounds(score_P, Asked(-np.arange(4.0), Fixed(-np.arange(4.0))), sizes(3, 1))
    assert order.tolist() == [1, 2, 0, 3]


def test_an_end_is_chosen_where_it_alone_is_best():
    assert [middle_best(values) for values in ([1.0, 1.0, 1.0], [0.1, 0.3], [0.2, 0.4, 0.4, 0.4, 0.3])] == [1, 1, 2]
    system = System(Row("ridge"), key="mu", values=(0.1, 1.0, 10.0))
    chosen = Chosen(system, "Top-1@100", (0.5, 0.7, 0.6))
    assert (chosen.value, system.having(chosen.value).row.mu) == (1.0, 1.0)
