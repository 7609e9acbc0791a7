"""Rules of pages that compare with papers: rates that are chosen, settings at an end, rows that stay at their start."""

import numpy as np
import pytest

from benchmarks.axn.rows import Row as AxnRow
from benchmarks.axn.rows import settings
from benchmarks.ehi.bench import at_shares
from benchmarks.ehi.rates import best, climb
from benchmarks.retreever.bench import Sized
from benchmarks.statistics import Curve, by_seed

LADDER = (1.0, 2.0, 4.0, 8.0, 16.0)


@pytest.mark.parametrize(
    ("peak", "tried"),
    [(4.0, [2.0, 4.0, 8.0]), (16.0, [2.0, 4.0, 8.0, 16.0]), (1.0, [1.0, 2.0, 4.0]), (8.0, [2.0, 4.0, 8.0, 16.0])],
)
def test_no_end_of_what_was_tried_is_chosen_but_an_end_of_the_ladder(peak, tried):
    asked = []

    def value(rate):
        asked.append(rate)
        return -abs(np.log(rate / peak))

    values = climb(LADDER, 4.0, value)
    assert list(values) == tried
    assert sorted(asked) == tried
    assert best(values) == peak


def test_the_smallest_of_equal_rates_is_chosen():
    assert best({2.0: 0.5, 1.0: 0.5, 4.0: 0.1}) == 1.0


def test_settings_at_an_end_are_marked():
    rates = [AxnRow("", rate=rate) for rate in (0.1, 1.0, 10.0)]
    assert settings(rates, [rates[0], rates[1], rates[2]]) == "rate 0.1* / 1 / 10*"
    lambdas = [AxnRow("", lam=lam) for lam in (0.0, 0.5, 0.8)]
    assert settings(lambdas, [lambdas[0], lambdas[1], lambdas[2]]) == "λ 0 / 0.5 / 0.8*"


def test_resampled_seeds():
    ours_SQ = np.array([[0.5, 0.7], [0.6, 0.6], [0.8, 1.0]])
    found = by_seed(ours_SQ, np.zeros_like(ours_SQ))
    assert found.value == pytest.approx(70.0)
    assert (found.low, found.high) == pytest.approx((60.0, 83.5))
    alone = by_seed(ours_SQ[:1], np.zeros((1, 2)))
    assert (alone.value, alone.low, alone.high) == pytest.approx((60.0, 60.0, 60.0))


@pytest.mark.parametrize(
    ("epochs", "says"), [([0], True), ([0, 0], True), ([0, 3], False), ([None], False), ([], False)]
)
def test_rows_that_stay_at_their_start_say_so(epochs, says):
    assert ("the start" in Sized([], {}, {"a tree": epochs}).shown("a tree")) == says


def test_recall_of_each_query_at_what_all_visit():
    curve = Curve(
        recall_PQ=np.array([[0.0, 1.0], [1.0, 1.0]]),
        visited_PQ=np.array([[0.05, 0.11], [0.1, 0.3]]),
        cost_PQ=np.zeros((2, 2)),
        exact_Q=np.ones(2),
    )
    # Both visit .08 on average, then .20; no beam visits .05.
    found_SQ = at_shares(curve)
    assert np.isnan(found_SQ[0]).all()
    np.testing.assert_allclose(found_SQ[1:], [[1 / 6, 1.0], [1.0, 1.0]])
