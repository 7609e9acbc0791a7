"""Sets of ids as digests."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rayhier.corpus import ids
from rayhier.corpus.row_checks import digest


def test_a_digest_that_ends_in_zeros_is_told_apart():
    ending, other = b"a" * 15 + b"\0", b"a" * 15 + b"b"
    found = ids.array(pa.chunked_array([pa.array([ending, other], ids.DIGEST), pa.array([ending], ids.DIGEST)]))
    assert found.tobytes() == ending + other + ending
    assert ids.later(found).tolist() == [2]


@given(st.lists(st.text(max_size=2)), st.text(max_size=2))
def test_like_a_set_of_strings(keys, probe):
    digests = np.array([digest(key) for key in keys], "S16")
    assert ids.later(digests).tolist() == [n for n, key in enumerate(keys) if key in keys[:n]]
    assert (probe in ids.IdSet(digests)) == (probe in keys)
