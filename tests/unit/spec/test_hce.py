"""Shape of HCE's tree."""

import pytest

from rayhier.spec.train.hce import TreeShape


@pytest.mark.parametrize(
    ("documents", "branching"),
    [(1, 2), (8, 2), (9, 4), (64, 4), (65, 8), (512, 8), (513, 16), (4096, 16), (4097, 32), (1_000_000, 128)],
)
def test_automatic_branching_is_the_power_of_two_from_the_cube_root_on(documents, branching):
    assert TreeShape(branching="auto").children(documents) == branching
    assert TreeShape(branching=7).children(documents) == 7
