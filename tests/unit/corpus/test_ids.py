"""Sets of ids as digests."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rayhier.corpus import ids
from rayhier.corpus.row_checks import digest


@given(st.lists(st.text(max_size=2)), st.text(max_size=2))
def test_like_a_set_of_strings(keys, probe):
    digests = np.array([digest(key) for key in keys], "S16")
    assert ids.later(digests).tolist() == [n for n, key in enumerate(keys) if key in keys[:n]]
    assert (probe in ids.IdSet(digests)) == (probe in keys)
