"""Which differences are tested, and the interval of one by hand; scipy's bootstrap is in tests/oracles."""

from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayhier.evaluate.significance import FEWEST, Difference, bootstrap, differences
from rayhier.evaluate.tables import said
from rayhier.search.words.fusion_weight import FusionWeight
from rayhier.spec import JobSpec


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
        return np.mean(["*" in said(Difference(**about, **asdict(interval))) for interval in found])

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


@pytest.mark.parametrize(
    ("weights", "baseline", "gain"),
    [((0.2, 0.3), "ehi+bm25", 0.3), ((0.0, 0.0), "ehi", 0.1), ((0.2, 0.0), "ehi+bm25 or ehi", 0.2)],
)
def test_what_is_re_ranked_is_searched_as_each_seed_s_weight_says(spec, trained, weights, baseline, gain):
    """Where BM25's weight is 0, the cross-encoder reads what vectors alone find."""
    reads = {"cross_encoder": {"model": "package:none"}, "search": {"rerank": {"type": "rnr"}}}
    reranked = JobSpec.model_validate({**spec.model_dump(mode="json", by_alias=True), **reads})
    zero = {measure: np.zeros(2) for measure in spec.evaluate.measures}
    for result, weight in zip(trained.seeds, weights, strict=True):
        result.weight = FusionWeight(weight=weight, queries=70, measure="nDCG@10", measured={})
        result.values |= {"ehi": zero, "ehi+bm25": {name: value - 0.2 for name, value in zero.items()}}
        result.values["ehi+rnr"] = {name: value + 0.1 for name, value in zero.items()}
        result.values["bm25"] = zero
    rows = [row for row in differences(reranked, trained) if row.system == "ehi+rnr"]
    assert {row.baseline for row in rows} == {baseline}
    assert {row.difference for row in rows} == {gain}
    assert not [row for row in differences(spec, trained) if row.system == "ehi+rnr"]
