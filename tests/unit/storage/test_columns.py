"""Vectors go into parquet columns and come back the same."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.storage import columns

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3) / 8


@pytest.mark.parametrize("value", [pa.float16(), pa.float32()])
def test_round_trip(value):
    column = pa.chunked_array([columns.vector_column(VECTORS[:1], value), columns.vector_column(VECTORS[1:], value)])
    back = columns.matrix(column)
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, VECTORS)


def test_no_rows():
    column = pa.chunked_array([], type=pa.list_(pa.float32(), 3))
    assert columns.matrix(column).shape == (0, 3)
