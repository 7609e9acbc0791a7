"""`auto` follows from the number of documents, and each router has its own fields."""

import pytest
from pydantic import TypeAdapter

from rayhier.spec.router import RouterSpec


def router(kind, **given):
    return TypeAdapter(RouterSpec).validate_python({"type": kind, **given})


@pytest.mark.parametrize(
    ("kind", "documents", "leaves"),
    [
        ("learned_ivf", 640, 160),  # 4 documents a leaf
        ("learned_ivf", 10_000, 2_500),  # 25 √N: where the two rules meet
        ("learned_ivf", 160_000, 10_000),
        ("learned_ivf", 1_000_000, 4_000),  # 4 √N beyond 200,000 documents, whose leaves hold codes
        ("learned_ivf", 3, 2),  # never fewer than two
        ("ehi", 640, 40),  # 16 documents a leaf
        ("ehi", 25_600, 1_600),  # √N / 10 = 16: where the two rules meet
        ("ehi", 1_000_000, 10_000),  # 100 a leaf
    ],
)
def test_auto(kind, documents, leaves):
    spec = router(kind)
    assert spec.leaves(documents) == leaves
    assert spec.over(documents).leaves(7) == leaves
    assert router(kind, branching=5).leaves(documents) == 5
    assert router("ehi", height=2).leaves(1_000_000) == 100**2
