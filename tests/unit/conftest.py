"""Random unit vectors."""

import pytest

from .. import draws


@pytest.fixture
def unit():
    """`unit(rng, n, m)`: random unit vectors."""
    return draws.unit
