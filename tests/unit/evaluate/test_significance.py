"""Which differences are tested, and the interval of one by hand; scipy's bootstrap is in tests/oracles."""

from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayhier.evaluate.significance import FEWEST, Difference, bootstrap, differences


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 100))
@settings(max_examples=15, deadline=None)
def test_resamples_draw_families_by_enumeration(family, seed):
    values, family_Q = np.random.default_rng(seed).normal(size=len(family)), np.array(family)
    members = [values[family_Q == number] for number in set(family)]
    means = [np.mean(np.concatenate(drawn)) for drawn in product(members, repeat=len(members))]
    found = bootstrap(values[:, None], family_Q)[0]
    assert found.difference == pytest.approx(values.mean())
    assert found.wins == pytest.approx(np.mean(np.array(means) > 0), abs=0.02)
    assert min(means) - 1e-9 <= found.low <= found.high <= max(means) + 1e-9
    if len(members) < 4:  # one resample of 27 is more than 2.5%
        assert (found.low, found.high) == pytest.approx((min(means), max(means)))


@pytest.mark.parametrize("families", [1, 2, 19, 20, 40])
def test_chance_is_seldom_starred(families):
    """The same number of queries in each family, of which all have the family's difference."""
    difference_QP = np.random.default_rng(families).normal(size=(families, 400)).repeat(3, axis=0)
    about = {"system": "a", "baseline": "b", "measure": "m", "visited": 1.0, "families": families}

    def starred(difference_QP):
        found = bootstrap(difference_QP, np.repeat(np.arange(families), 3))
        return np.mean([not Difference(**about, **asdict(interval)).doubt for interval in found])

    assert starred(difference_QP) <= (0 if families < FEWEST else 0.1)
    assert starred(difference_QP + 9) == (families >= FEWEST)


INTERVALS = {"all": [0.2, 0.1, 0.3, 1.0], "new answers": [0.3, 0.3, 0.3, 1.0]}


def test_both_encoders_are_compared_in_every_measure_over_all_queries_and_those_with_new_answers(spec, trained):
    found = [row for row in differences(spec, trained) if row.baseline == "exact"]
    assert [(row.queries, row.measure) for row in found] == list(product(INTERVALS, spec.evaluate.measures))
    for row in found:
        assert (row.system, row.visited) == ("exact_same_encoder", 1.0)
        numbers = [getattr(row, name) for name in ("difference", "low", "high", "wins")]
        assert numbers == pytest.approx(INTERVALS[row.queries])
    for new in (True, False):
        alike = differences(spec, replace(trained, new_Q=np.array([new, new])))
        assert alike == [row for row in differences(spec, trained) if row.queries == "all"]
