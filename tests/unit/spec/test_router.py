"""`auto` follows from the number of documents, and each router has its own fields."""

import pytest
from pydantic import TypeAdapter

from rayhier.spec.router import RouterSpec


def router(kind, **given):
    return TypeAdapter(RouterSpec).validate_python({"type": kind, **given})


@pytest.mark.parametrize(
    ("kind", "documents", "height", "leaves"),
    [
        ("learned_ivf", 640, 1, 160),  # 4 documents a leaf
        ("learned_ivf", 10_000, 1, 2_500),  # 25 √N: where the two rules meet
        ("learned_ivf", 160_000, 1, 10_000),
        ("learned_ivf", 1_000_000, 1, 4_000),  # 4 √N beyond 200,000 documents, whose leaves hold codes
        ("learned_ivf", 3, 1, 2),  # never fewer than two
        ("ehi", 640, 1, 40),  # 16 documents a leaf
        ("ehi", 25_600, 1, 1_600),  # √N / 10 = 16: where the two rules meet
        ("ehi", 1_000_000, 1, 10_000),  # 100 a leaf
        ("ehi", 1_000_000, 2, 100**2),
        ("ehi", 3, 1, 2),
    ],
)
def test_auto(kind, documents, height, leaves):
    spec = router(kind, **({"height": height} if height > 1 else {}))
    assert spec.leaves(documents) == leaves
    assert spec.over(documents).leaves(7) == leaves
    assert router(kind, branching=5).leaves(documents) == 5


@pytest.mark.parametrize(
    ("kind", "spills", "splits", "phases", "unsupervised"),
    [
        ("learned_ivf", True, True, {"router": 5}, {"router": 0}),
        ("ehi", False, False, {}, {}),
        ("hce", False, False, {}, {}),
    ],
)
def test_what_a_router_can_do(kind, spills, splits, phases, unsupervised):
    spec = router(kind)
    assert (spec.spills, spec.splits_leaves, spec.reads) == (spills, splits, "vectors")
    assert (spec.phases(supervised=True), spec.phases(supervised=False)) == (phases, unsupervised)
