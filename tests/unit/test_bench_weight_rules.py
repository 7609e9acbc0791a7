"""Rules for BM25's weight, on values worked out by hand."""

import numpy as np
import pytest

from benchmarks.statistics import paired
from benchmarks.weight_rules import WEIGHTS, argmax, chosen, near_prior, outcome, penalised


def curve(best, queries=8, slope=0.01):
    """Make values [w, q] that fall by `slope` with each step from the best weight, alike for all queries."""
    steps = np.abs(np.arange(len(WEIGHTS)) - WEIGHTS.index(best))
    return np.repeat(0.5 - slope * steps[:, None], queries, axis=1)


def test_a_part_does_not_choose_its_own_weight():
    value_WA = np.concatenate([curve(0.1, 4), curve(0.5, 4)], axis=1)
    part_A = np.repeat([0, 1], 4)
    assert [WEIGHTS[best] for best in chosen(value_WA, part_A)] == [0.5] * 4 + [0.1] * 4


def test_without_noise_the_rule_near_a_prior_takes_the_best():
    value_WDN = curve(0.5)[:, None]
    assert WEIGHTS[argmax(value_WDN)[0]] == WEIGHTS[near_prior(value_WDN, 0.1)[0]] == 0.5


def test_with_noise_it_stays_at_the_prior():
    swing_WQ = 1e-3 * np.arange(len(WEIGHTS))[:, None] * np.resize([1, -1], 8)
    value_WDN = (curve(0.5, slope=1e-6) + swing_WQ)[:, None]
    assert WEIGHTS[argmax(value_WDN)[0]] == 0.5
    assert WEIGHTS[near_prior(value_WDN, 0.15)[0]] == 0.15


@pytest.mark.parametrize(("queries", "wanted"), [(1, 0.2), (20, 0.3), (1000, 0.5)])
def test_a_penalty_says_less_the_more_queries_there_are(queries, wanted):
    value_WDN = curve(0.5, queries)[:, None]
    assert WEIGHTS[penalised(value_WDN, 0.2, 1.0)[0]] == wanted


def test_an_interval_of_families_is_wider_than_one_of_their_queries():
    difference_A = np.repeat(np.random.default_rng(0).normal(0, 0.1, 40), 5)
    families, queries = (
        paired(difference_A, 0 * difference_A, family_A) for family_A in (np.repeat(np.arange(40), 5), np.arange(200))
    )
    assert families.value == pytest.approx(queries.value) == pytest.approx(100 * difference_A.mean())
    assert families.high - families.low > 1.7 * (queries.high - queries.low)


def test_an_outcome_is_told_in_points():
    values = {"nDCG@10": curve(0.3), "R@100": curve(0.5)}
    told = outcome(values, np.repeat([0, 1], 4), argmax, values["R@100"], 2)
    assert (told.loss, told.gain, told.bad) == pytest.approx((2, 5, 5))
    assert told.recall == pytest.approx(9)
