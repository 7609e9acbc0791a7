"""Vectors in parquet files: as bytes, or as fixed-size lists in files of rayhier 0.2.0."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayhier.storage import columns, parquet


@pytest.mark.parametrize("value", [pa.float16(), pa.float32()], ids=str)
@pytest.mark.parametrize("held", [[], [True] * 5, [False] * 4, [True, False, False, True, True, False]])
@pytest.mark.parametrize("first", [0, 2])
def test_both_forms_are_read_alike(tmp_path, value, held, first):
    root, held_N, m = tmp_path, np.array(held, bool), 3
    vector_NM = np.arange(len(held) * m, dtype=value.to_pandas_dtype()).reshape(-1, m)
    vectors = pa.table({"vector": columns.vector_column(vector_NM, value, held_N), "row": np.arange(len(held))})
    lists, wanted = columns.as_lists(vectors), zip(vector_NM.tolist(), held, strict=True)
    assert pa.types.is_fixed_size_list(lists["vector"].type)
    assert lists["vector"].to_pylist() == vectors["vector"].to_pylist() == [row if own else None for row, own in wanted]
    for table in (vectors, lists):
        file = parquet.write(root, "a.parquet", [table[:first], table[first:]], table.schema)
        read = columns.read([root / file.name], ["vector", "row"])
        assert read.equals(vectors)
        for part in (read, parquet.read(root / file.name)):
            stored = columns.as_stored(part["vector"][first:])
            assert stored.dtype == vector_NM.dtype
            assert np.array_equal(stored, vector_NM[first:][held_N[first:]])


def test_vectors_have_no_dictionary_and_no_statistics(tmp_path):
    table = pa.table({"id": ["a"], "leaves": [[1]], "vector": columns.vector_column(np.ones((1, 4)), pa.float16())})
    group = pq.ParquetFile(tmp_path / parquet.write(tmp_path, "a.parquet", [table], table.schema).name).metadata
    found = {(c := group.row_group(0).column(n)).path_in_schema: c for n in range(3)}
    assert {path for path, column in found.items() if column.statistics is None} == {"vector"}
    assert {path for path, column in found.items() if not column.has_dictionary_page} == {"vector"}
    assert group.schema.column(2).physical_type == "FIXED_LEN_BYTE_ARRAY"
