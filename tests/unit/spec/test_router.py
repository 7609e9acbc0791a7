"""`auto` follows from the number of documents, and each router has its own fields."""

import pytest
from pydantic import TypeAdapter

from rayhier.spec.router import RouterSpec


def router(kind, **given):
    return TypeAdapter(RouterSpec).validate_python({"type": kind, **given})


AUTO = {
    "learned_ivf": {3: 2, 640: 160, 10_000: 2_500, 160_000: 10_000, 1_000_000: 4_000},
    "ehi": {640: 40, 25_600: 1_600, 1_000_000: 10_000},
}
"""Documents -> leaves. Learned IVF: 4 documents a leaf up to 25 √N = 4 N, then 25 √N; 4 √N beyond 200,000, where leaves
hold codes. EHI: 16 documents a leaf up to √N / 10 = 16; at most 100 a leaf."""


@pytest.mark.parametrize("kind", AUTO)
def test_auto(kind):
    for documents, leaves in AUTO[kind].items():
        assert router(kind).leaves(documents) == router(kind).over(documents).leaves(7) == leaves
    assert router(kind, branching=5).leaves(640) == 5
    assert router("ehi", height=2).leaves(1_000_000) == 100**2
