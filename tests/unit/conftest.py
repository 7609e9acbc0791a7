"""Random unit vectors."""

import numpy as np
import pytest


@pytest.fixture
def unit():
    """`unit(rng, n, m)`: random unit vectors."""

    def draw(rng, *shape):
        vectors = rng.normal(size=shape).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return draw
