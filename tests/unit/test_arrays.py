"""Arrays in files."""

import errno
import os

import numpy as np
import pytest

from rayhier import arrays


def test_a_full_disk_is_an_error_before_vectors_are_written(monkeypatch):
    monkeypatch.setattr(arrays, "IN_MEMORY", 1_000)
    made = arrays.for_vectors(100, 8)
    made[:] = 0.5
    assert (made.dtype, arrays.for_vectors(10, 8).dtype, float(made.sum())) == (np.float16, np.float32, 400.0)

    def full(_, begin, size):
        raise OSError(errno.ENOSPC, f"{begin} {size}")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="0 1600"):
        arrays.for_vectors(100, 8)
