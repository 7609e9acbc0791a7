"""Convert between parquet columns and numpy arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayhier.arrays import Bools, Floats
from rayhier.storage import parquet
from rayhier.storage.paths import Location


def vector_column(vectors: npt.NDArray[Any], value: pa.DataType, held_N: Bools | None = None) -> pa.FixedSizeListArray:
    """Convert an array [n, m] to a column of n lists of m numbers of type `value`, null where `held_N` is False."""
    flat = np.ascontiguousarray(vectors, dtype=value.to_pandas_dtype()).reshape(-1)
    mask = None if held_N is None else pa.array(~held_N)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat, type=value), vectors.shape[1], mask=mask)


def matrix(column: pa.ChunkedArray) -> Floats:
    """Convert a column of n fixed-size lists of m numbers to a float32 array [n, m]."""
    return as_stored(column).astype(np.float32, copy=False)


def as_stored(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Convert a column of n fixed-size lists of m numbers to an array [n, m] of the stored number type."""
    chunks = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    flat = np.concatenate(chunks) if chunks else np.empty(0, column.type.value_type.to_pandas_dtype())
    return np.asarray(flat.reshape(-1, column.type.list_size))


def read(paths: Sequence[Location], columns: Sequence[str]) -> pa.Table:
    """Read columns of parquet files with one schema as one table."""
    return pa.concat_tables([parquet.read(path, columns) for path in paths])
