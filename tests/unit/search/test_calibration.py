"""The beam that dev queries choose: against its definition, and as it is written and read."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rayhier.search.routing.chosen_beam import Calibration


@given(seed=st.integers(0, 10**6), n=st.integers(20, 60), most=st.integers(1, 7), recall=st.floats(0.5, 0.999))
def test_the_beam_is_the_smallest_with_which_enough_is_found(seed, n, most, recall):
    position_QK = np.random.default_rng(seed).integers(1, 50, (n, most))
    calibration = Calibration(position_QK)
    for k in range(1, most + 3):
        chosen, counted = calibration.chosen(recall, k), position_QK[:, :k]
        found = [float((counted <= beam).mean()) for beam in range(51)]
        assert chosen.beam == next(beam for beam in range(51) if found[beam] >= recall - 1e-9)
        assert (chosen.k, chosen.queries, chosen.recall) == (min(k, most), n, found[chosen.beam])
        assert recall - 1e-9 <= chosen.recall <= 1


def test_documents_as_queries_must_find_half_of_the_rest_too(tmp_path):
    position_QK = np.arange(1, 101)[None]
    assert [Calibration(position_QK, of).chosen(0.9, 100).beam for of in ("dev queries", "documents")] == [90, 95]
