"""`branching: auto` follows from the number of documents."""

import pytest

from rayhier.spec.router import EhiSpec


@pytest.mark.parametrize(
    ("documents", "height", "leaves"),
    [
        (640, 1, 40),  # 16 documents a leaf
        (25_600, 1, 1_600),  # √N / 10 = 16: where the two rules meet
        (1_000_000, 1, 10_000),  # 100 a leaf
        (1_000_000, 2, 100**2),
        (3, 1, 2),  # never fewer than two
    ],
)
def test_auto(documents, height, leaves):
    assert EhiSpec(type="ehi", height=height, warm_start="none").leaves(documents) == leaves


def test_given():
    assert EhiSpec(type="ehi", branching=5, height=3, warm_start="none").leaves(10) == 125
