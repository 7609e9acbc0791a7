"""What is assigned to leaves: vectors that are numbers, read in the order of their documents."""

import numpy as np
import pyarrow as pa
import pytest

from rayhier.index.assign import read_part
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError
from rayhier.storage import columns, parquet, schemas

from .conftest import M, documents, unit

DOCUMENTS, VECTORS = documents([f"d{row}" for row in range(40)]), unit(0, 40, M)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_vectors_that_are_no_numbers_are_named(assign, value):
    vectors = VECTORS.copy()
    vectors[7, 3] = value
    with pytest.raises(InputError, match=r"vectors: got 1 of 40 .*'d7'; allowed: .*float32"):
        assign(DOCUMENTS, Encoded(vectors))


def test_a_part_is_read_as_it_was_written_and_never_in_another_order(tmp_path):
    places = tmp_path / "documents.parquet", tmp_path / "vectors.parquet"
    parquet.write(tmp_path, "documents.parquet", [DOCUMENTS], DOCUMENTS.schema)
    column = columns.vector_column(VECTORS, pa.float32())
    table = pa.table([DOCUMENTS["doc_id"], column], schema=schemas.vectors("doc_id", M))
    parquet.write(tmp_path, "vectors.parquet", [table], table.schema)
    found, base = read_part(*places)
    assert found.equals(DOCUMENTS)
    assert np.array_equal(base, VECTORS)
    for other in (table[::-1], table[1:]):
        parquet.write(tmp_path, "vectors.parquet", [other], other.schema)
        with pytest.raises(ValueError, match="same ids in the same order"):
            read_part(*places)
