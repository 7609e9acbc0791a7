"""Documents in leaves, by hand: every document once in its leaf, or once in each of its two."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayhier.index.assign import Assigner, read_part
from rayhier.model.ehi import EhiRouter
from rayhier.model.encoded import Encoded
from rayhier.spec import InputError
from rayhier.storage import columns, files, schemas

from ...toys import job

N, M, B = 40, 6, 5


def spec(**index):
    return job(router={"type": "ehi"}, index=index)


@pytest.fixture
def router():
    torch.manual_seed(0)
    made = EhiRouter(M, B, 1, "relu")
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    made.cells.centroid_LM.copy_(torch.eye(B, M))
    return made.requires_grad_(requires_grad=False)


@pytest.fixture
def documents():
    """Ids not in order."""
    ids = [f"d{row:02d}" for row in np.random.default_rng(2).permutation(N)]
    return pa.table([ids, [f"title {n}" for n in ids], [f"text {n}" for n in ids]], schema=schemas.DOCUMENTS)


@pytest.mark.parametrize(
    ("value", "precision"), [(np.nan, "float32"), (np.inf, "float32"), (1e5, "float16")], ids=["nan", "inf", "large"]
)
def test_vectors_that_are_no_numbers_are_named(router, vectors, documents, value, precision):
    vectors[7, 3] = value
    with pytest.raises(InputError, match=f"vectors: 1 of 40 .*'{documents['doc_id'][7]}'; allowed: .*{precision}"):
        Assigner(router, spec(vectors=precision))(documents, Encoded(vectors))


def test_a_part_is_read_as_it_was_written_and_never_in_another_order(tmp_path, documents, vectors):
    places = tmp_path / "documents.parquet", tmp_path / "vectors.parquet"
    files.write_parquet(tmp_path, "documents.parquet", [documents], documents.schema)
    column = columns.vector_column(vectors, pa.float32())
    table = pa.table([documents["doc_id"], column], schema=schemas.vectors("doc_id", M))
    files.write_parquet(tmp_path, "vectors.parquet", [table], table.schema)
    found, base = read_part(*places)
    assert found.equals(documents)
    assert np.array_equal(base, vectors)
    for other in (table[::-1], table[1:]):
        files.write_parquet(tmp_path, "vectors.parquet", [other], other.schema)
        with pytest.raises(ValueError, match="same ids in the same order"):
            read_part(*places)
