"""Unit vectors."""

import numpy as np


def unit(rng, *shape):
    """Draw vectors of length 1, float32, along the last axis of a shape; `rng` is a generator or a seed."""
    return to_unit(np.random.default_rng(rng).normal(size=shape).astype(np.float32))


def to_unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
