"""Vectors go into parquet columns and come back the same."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.storage import columns

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3) / 8


@pytest.mark.parametrize("value", [pa.float16(), pa.float32()])
def test_round_trip(value):
    column = pa.chunked_array([columns.vector_column(VECTORS[:1], value), columns.vector_column(VECTORS[1:], value)])
    back = columns.matrix(column)
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, VECTORS)


def test_a_slice_is_its_own_rows():
    column = pa.chunked_array([columns.vector_column(VECTORS, pa.float32())])
    np.testing.assert_array_equal(columns.matrix(column.slice(1, 2)), VECTORS[1:3])


def test_no_rows():
    column = pa.chunked_array([], type=pa.list_(pa.float32(), 3))
    assert columns.matrix(column).shape == (0, 3)


def test_several_files_in_the_order_given(tmp_path):
    for name in ("a", "b"):
        pq.write_table(pa.table({"x": [name], "y": [0]}), tmp_path / name)
    found = columns.read([tmp_path / "b", tmp_path / "a"], ["x"])
    assert found.to_pydict() == {"x": ["b", "a"]}
