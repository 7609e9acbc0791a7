"""Converts between parquet columns and numpy arrays. A vector is stored as the bytes of its numbers."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rayhier.arrays import Bools, Floats
from rayhier.storage import parquet
from rayhier.storage.paths import Location


class VectorScalar(pa.ExtensionScalar):  # type: ignore[misc]
    def as_py(self, **_: Any) -> list[Any] | None:
        number = self.type.value_type.to_pandas_dtype()
        return None if self.value is None else np.frombuffer(self.value.as_py(), number).tolist()


class VectorType(pa.ExtensionType):  # type: ignore[misc]
    """Type of a column of vectors: fixed-size binary, which parquet reads several times as fast as lists."""

    def __init__(self, value: pa.DataType, dimension: int) -> None:
        self.value_type, self.dimension = value, dimension
        super().__init__(pa.binary(dimension * value.byte_width), "rayhier.vector")

    def __arrow_ext_serialize__(self) -> bytes:
        return str(np.dtype(self.value_type.to_pandas_dtype())).encode()

    def __arrow_ext_scalar_class__(self) -> type[VectorScalar]:
        return VectorScalar

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Self:
        value = pa.from_numpy_dtype(serialized.decode())
        return cls(value, storage.byte_width // value.byte_width)


pa.register_extension_type(VectorType(pa.float32(), 1))


def vector_column(vectors: npt.NDArray[Any], value: pa.DataType, held_N: Bools | None = None) -> pa.ExtensionArray:
    """Convert an array [n, m] to a column of n vectors of type `value`. Rows with `held_N` False become null."""
    number_NM = np.ascontiguousarray(vectors, dtype=value.to_pandas_dtype())
    kind = VectorType(value, number_NM.shape[1])
    valid = None if held_N is None else pa.array(held_N).buffers()[1]
    stored = pa.Array.from_buffers(kind.storage_type, len(number_NM), [valid, pa.py_buffer(number_NM)])
    return pa.ExtensionArray.from_storage(kind, stored)


def matrix(column: pa.ChunkedArray) -> Floats:
    """Convert a column of n vectors of m numbers to a float32 array [n, m]."""
    return as_stored(column).astype(np.float32, copy=False)


def as_stored(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Convert a column of n vectors of m numbers to an array [n, m] of the stored number type, without nulls."""
    column = _as_bytes(column)
    none = np.empty((0, column.type.dimension), column.type.value_type.to_pandas_dtype())
    return np.concatenate([none, *(_numbers(chunk.storage.drop_null(), column.type) for chunk in column.chunks)])


def as_bytes(table: pa.Table) -> pa.Table:
    """Convert columns of fixed-size lists, in which rayhier 0.2.0 stored vectors, to columns of vectors."""
    for place, field in enumerate(table.schema):
        if pa.types.is_fixed_size_list(field.type):
            column = _as_bytes(table[place])
            table = table.set_column(place, field.with_type(column.type), column)
    return table


def as_lists(table: pa.Table) -> pa.Table:
    """Convert columns of vectors to fixed-size lists, which other programs can read."""
    for place, field in enumerate(table.schema):
        if isinstance(kind := field.type, VectorType):
            stored = table[place].combine_chunks().storage
            flat = pa.array(_numbers(stored, kind).reshape(-1), kind.value_type)
            lists = pa.FixedSizeListArray.from_arrays(flat, kind.dimension, mask=stored.is_null())
            table = table.set_column(place, field.with_type(lists.type), lists)
    return table


def read(paths: Sequence[Location], columns: Sequence[str]) -> pa.Table:
    return pa.concat_tables([as_bytes(parquet.read(path, columns)) for path in paths])


def _as_bytes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_fixed_size_list(column.type):
        return column
    m, value, chunks = column.type.list_size, column.type.value_type, []
    for chunk in column.chunks:
        number_NM = chunk.values[chunk.offset * m :][: len(chunk) * m].to_numpy(zero_copy_only=False).reshape(-1, m)
        held_N = chunk.is_valid().to_numpy(zero_copy_only=False) if chunk.null_count else None
        chunks.append(vector_column(number_NM, value, held_N))
    return pa.chunked_array(chunks, VectorType(value, m))


def _numbers(stored: pa.FixedSizeBinaryArray, kind: VectorType) -> npt.NDArray[Any]:
    """View stored vectors as an array [n, m]. A null row holds arbitrary numbers."""
    shape, begin = (len(stored), kind.dimension), stored.offset * stored.type.byte_width
    return np.ndarray(shape, kind.value_type.to_pandas_dtype(), stored.buffers()[1], begin)
