"""The arithmetic of a promise: against its definition, and on average over many draws of queries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayhier.search.calibration import Calibration
from rayhier.spec import InputError
from rayhier.spec.search import RecallBeam


def beam(target):
    return RecallBeam(type="recall", target=target)


def risk(floor_QK, floor):
    """n / (n + 1) R + 1 / (n + 1), query by query."""
    losses = [sum(value < floor for value in row) / len(row) for row in floor_QK]
    return sum(losses) / (len(losses) + 1) + 1 / (len(losses) + 1)


@given(seed=st.integers(0, 10**6), n=st.integers(20, 60), k=st.integers(1, 7), target=st.floats(0.5, 0.95))
def test_the_floor_is_the_largest_whose_risk_is_small_enough(seed, n, k, target):
    floor_QK = np.random.default_rng(seed).integers(0, 50, (n, k)).astype(np.float32)
    if n < beam(target).least_queries:
        return
    found = Calibration(floor_QK).floor(beam(target))
    allowed = [value for value in range(51) if risk(floor_QK, value) <= 1 - target + 1e-9]
    assert found == min(max(allowed), floor_QK.max())
    assert Calibration(floor_QK).promised(found) == pytest.approx(1 - risk(floor_QK, found))
    assert Calibration(floor_QK).promised(found) >= target - 1e-9


def test_a_floor_is_rounded_down():
    floor_QK = np.tile(np.array([[-0.123456, 0.98765]], np.float32), (30, 1))
    assert Calibration(floor_QK).floor(beam(0.9)) == -0.1235


@pytest.mark.parametrize("target", [0.8, 0.9, 0.95])
def test_what_is_promised_holds_on_average_over_draws(target):
    """Queries whose documents lie at very different distances: some are found at once, some only by chance."""
    rng = np.random.default_rng(7)
    held, without_margin = [], []
    for _ in range(600):
        hardness_Q = rng.gamma(0.7, 2.0, 60)
        floor_QK = -hardness_Q[:, None] * rng.uniform(0, 1, (60, 8)).astype(np.float32)
        known, fresh = Calibration(floor_QK[:30]), floor_QK[30:]
        held.append((fresh >= known.floor(beam(target))).mean())
        missed = int((1 - target) * floor_QK[:30].size)
        without_margin.append((fresh >= np.sort(floor_QK[:30], axis=None)[missed]).mean())
    chance = np.std(held) / len(held) ** 0.5
    assert target - 2 * chance <= np.mean(held) <= target + 2 / 31 + 2 * chance
    assert np.mean(without_margin) < np.mean(held)  # the margin for the query that is not known yet


TOO_FEW = {(0.5, 19): 20, (0.9, 3): 20, (0.95, 19): 20, (0.98, 48): 49, (0.99, 98): 99, (0.999, 998): 999}


@pytest.mark.parametrize(("given", "needed"), TOO_FEW.items(), ids=str)
def test_too_few_queries_promise_nothing(given, needed):
    target, queries = given
    with pytest.raises(InputError) as refused:
        Calibration(np.zeros((queries, 2), np.float32)).floor(beam(target))
    said = f"search.beam.target: got {target} with {queries} dev queries; allowed: at least {needed} dev queries"
    assert str(refused.value) == said
    assert Calibration(np.zeros((needed, 2), np.float32)).floor(beam(target)) == 0
